//! Owns the two helper programs in a Pod's namespaces: `pause` holds them open, `enter` joins them
//! and executes a command. Both are subcommands of this binary, and run before it starts a thread.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_no_new_privs;
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use super::LabError;
use super::network::POD_SETTINGS;

/// Files of `/etc` that each Pod has its own version of.
pub(super) const ETC_FILES: [&str; 3] = ["hosts", "resolv.conf", "nsswitch.conf"];

/// Flags of `smc-lab pause`.
#[derive(Args, Debug)]
pub struct PauseArgs {
    /// Directory with the Pod's own files of /etc.
    #[arg(long)]
    etc: PathBuf,
}

/// Creates a Pod's network and mount namespaces, prints `ready`, and holds them until standard
/// input closes.
pub fn pause(args: &PauseArgs) -> Result<(), LabError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).map_err(|errno| system("unshare", errno))?;
    for (setting, value) in POD_SETTINGS {
        write_setting(setting, value)?;
    }
    for file in ETC_FILES {
        let target = Path::new("/etc").join(file);
        // A dangling link points into the host's `/run`, which is not mounted here. Its target can
        // be created.
        if !target.exists()
            && let Ok(link) = fs::read_link(&target)
        {
            let link = Path::new("/etc").join(link);
            let parent = link.parent().unwrap_or(Path::new("/run"));
            fs::create_dir_all(parent).map_err(LabError::file("create", parent))?;
            fs::write(&link, "").map_err(LabError::file("create", &link))?;
        }
        if target.exists() {
            mount(Some(&args.etc.join(file)), &target, None::<&str>, MsFlags::MS_BIND, None::<&str>)
                .map_err(|errno| LabError::file("mount over", &target)(errno.into()))?;
        }
    }
    let mut out = io::stdout().lock();
    let done = |source| LabError::file("write", Path::new("standard output"))(source);
    out.write_all(b"ready\n").and_then(|()| out.flush()).map_err(done)?;
    let mut buffer = [0; 64];
    while matches!(io::stdin().read(&mut buffer), Ok(1..)) {}
    Ok(())
}

/// Flags of `smc-lab enter`.
#[derive(Args, Debug)]
pub struct EnterArgs {
    /// Process whose network and mount namespaces are joined.
    #[arg(long)]
    pid: u32,
    /// User to run as; root stays root.
    #[arg(long, default_value_t = 0)]
    uid: u32,
    /// Group to run as.
    #[arg(long, default_value_t = 0)]
    gid: u32,
    /// The command to execute.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Joins a Pod's namespaces, changes the user, and executes the command. Returns only on failure.
pub fn enter(args: &EnterArgs) -> Result<(), LabError> {
    let open = |kind: &str| {
        let path = PathBuf::from(format!("/proc/{}/ns/{kind}", args.pid));
        File::open(&path).map_err(LabError::file("open", &path))
    };
    let (net, mnt) = (open("net")?, open("mnt")?);
    setns(net, CloneFlags::CLONE_NEWNET).map_err(|errno| system("join the network namespace", errno))?;
    setns(mnt, CloneFlags::CLONE_NEWNS).map_err(|errno| system("join the mount namespace", errno))?;
    if args.uid != 0 {
        setgroups(&[]).map_err(|errno| system("drop groups", errno))?;
        setgid(Gid::from_raw(args.gid)).map_err(|errno| system("become the group", errno))?;
        setuid(Uid::from_raw(args.uid)).map_err(|errno| system("become the user", errno))?;
        set_no_new_privs().map_err(|errno| system("give up new privileges", errno))?;
    }
    let [program, arguments @ ..] = args.command.as_slice() else { return Ok(()) };
    let error = Command::new(program).args(arguments).current_dir("/").exec();
    Err(LabError::Command { command: program.to_string_lossy().into_owned(), problem: error.to_string() })
}

/// Writes a kernel setting of the current network namespace. Ignores a setting that this kernel
/// does not have.
pub(super) fn write_setting(setting: &str, value: &str) -> Result<(), LabError> {
    let path = Path::new("/proc/sys/net").join(setting);
    match fs::write(&path, value) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LabError::file("write", &path)(error)),
        _ => Ok(()),
    }
}

fn system(action: &str, errno: nix::errno::Errno) -> LabError {
    LabError::Command { command: action.to_owned(), problem: errno.to_string() }
}
