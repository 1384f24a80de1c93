//! `smc install` and `smc upgrade`.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use smc_kubernetes::install::apply::{Applied, ApplyError, Cluster, object_name, replicas, rollout};
use smc_kubernetes::install::check::facts::{controllers, group, mesh_config};
use smc_kubernetes::install::check::key;
use smc_kubernetes::install::check::rules::too_few;
use smc_kubernetes::install::check::stuck::stuck;
use smc_kubernetes::install::conversion;
use smc_kubernetes::install::manifests::{all_objects, to_yaml};
use smc_kubernetes::install::ownership;
use smc_kubernetes::install::settings::{Disks, Settings, converting, installed_version};
use smc_kubernetes::names::INJECTOR;
use smc_kubernetes::stateful_set::MAX_REPLICAS;
use smc_types::ids::{MeshName, MeshNamespace, TrustDomain};
use thiserror::Error;
use tokio::time::{Instant, sleep, timeout_at};

use super::duration;
use super::kube_access::KubeArgs;
use super::outcome::{Outcome, Verdict};
use super::output::{self, print_progress};

/// The controllers of the settings for production: one of them may be missing.
const HA_REPLICAS: u64 = 3;

/// The pause between two looks at what is waited for.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// How long the API server may take to serve a kind that was defined.
const SERVED: Duration = Duration::from_secs(30);

/// How long controllers are too few for their group before an installation ends: longer than an election.
const IN_VAIN: Duration = Duration::from_secs(5);

/// The version of this program, and of the manifests in it.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What names an installation.
#[derive(Debug, Args)]
pub(super) struct WhereArgs {
    /// The name of the mesh
    #[arg(long, value_name = "NAME", default_value_t, value_parser = MeshName::new)]
    pub(super) mesh_name: MeshName,
    /// The namespace of the control plane
    #[arg(long, value_name = "NAMESPACE", default_value_t, value_parser = MeshNamespace::new)]
    pub(super) mesh_namespace: MeshNamespace,
    #[command(flatten)]
    pub(super) kube: KubeArgs,
}

/// What may be chosen at an installation and at each upgrade.
#[derive(Debug, Args)]
struct ImageArgs {
    /// The image of the controllers, and of the init containers of sidecars [default: that of this version,
    /// of an upgrade from the repository that is used, or the one in use if --envoy-image is given]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The image of the sidecars' Envoy [default: as with --image, and the one in use if that is given]
    #[arg(long, value_name = "IMAGE")]
    envoy_image: Option<String>,
    /// Print the objects as YAML, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long to wait until the controllers are ready; 0s for not at all
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration::parse)]
    wait: Duration,
}

/// Flags of `smc install`.
#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// The settings for production: three controllers, and no pod of the mesh without a sidecar
    #[arg(long)]
    ha: bool,
    /// How many controllers [default: 1, or 3 with --ha]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MAX_REPLICAS))]
    replicas: Option<u64>,
    /// The most controllers that there may ever be
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=MAX_REPLICAS))]
    max_replicas: u64,
    /// The trust domain of every identity; it cannot be changed later
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local", value_parser = TrustDomain::new)]
    trust_domain: TrustDomain,
    /// The StorageClass of the controllers' disks [default: the cluster's]
    #[arg(long, value_name = "NAME")]
    storage_class: Option<String>,
    /// The size of each controller's disk
    #[arg(long, value_name = "SIZE", default_value = "1Gi")]
    storage_size: String,
    /// No disks: the mesh of one controller is lost with its pod
    #[arg(long, conflicts_with_all = ["storage_class", "storage_size"])]
    ephemeral: bool,
    /// The Secret with the key-encryption key; one that is missing is made, unless a mesh was founded before
    #[arg(long, value_name = "SECRET", default_value = "smc-kek")]
    kek_secret: String,
    /// All traffic between pods of the mesh, and out of it, is allowed, until MeshConfig says otherwise
    ///
    /// Without it, sidecars refuse every call that no TrafficTarget allows. A MeshConfig that is there
    /// already stays as it is.
    #[arg(long)]
    permissive: bool,
}

/// Flags of `smc upgrade`.
#[derive(Debug, Args)]
pub(super) struct UpgradeArgs {
    #[command(flatten)]
    place: WhereArgs,
    #[command(flatten)]
    images: ImageArgs,
    /// The Secret with the key-encryption key [default: the one in use]
    #[arg(long, value_name = "SECRET")]
    kek_secret: Option<String>,
    /// The settings for production, as those of `smc install --ha`, with three controllers at least;
    /// `=false` for the others [default: those in use]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    ha: Option<bool>,
    /// Another Secret, whose key is accepted while one key takes the place of the other; "" for none any more
    #[arg(long, value_name = "SECRET")]
    also_kek_secret: Option<String>,
}

/// An installation cannot go on.
#[derive(Debug, Error)]
enum InstallError {
    #[error("SMC is installed in {0} already: use smc upgrade")]
    There(MeshNamespace),
    #[error(
        "SMC is being uninstalled from {0}: its controllers end within a minute or two, then install again"
    )]
    Ending(MeshNamespace),
    #[error("SMC is not installed in {0}: use smc install")]
    NotThere(MeshNamespace),
    #[error(
        "the controllers' image would stay one of {installed}, under the manifests of smc {VERSION}, whose flags it may \
         not know: name --image as well, or upgrade without other flags first, or use smc {installed}"
    )]
    OtherVersion { installed: String },
    #[error("the mesh {mesh} is that of the namespace {namespace}: use another --mesh-name")]
    Taken { mesh: MeshName, namespace: String },
    #[error(
        "{reason}: controllers that restart would not open the mesh's keys, so nothing was changed; restore your copy \
         of it (kubectl replace --force -f {secret}.yaml), then upgrade"
    )]
    Unopened { reason: String, secret: String },
    #[error("--replicas {replicas} is greater than --max-replicas {max}")]
    TooMany { replicas: u64, max: u64 },
    #[error("not ready within {0} s: {1}; `smc check` says more")]
    NotReady(u64, String),
    #[error("installed, and it cannot get ready: {0}")]
    TooFew(String),
}

impl InstallArgs {
    fn settings(&self) -> Result<Settings, InstallError> {
        let replicas = self.replicas.unwrap_or(if self.ha { HA_REPLICAS } else { 1 });
        if replicas > self.max_replicas {
            return Err(InstallError::TooMany { replicas, max: self.max_replicas });
        }
        let disks = if self.ephemeral {
            Disks::Ephemeral
        } else {
            Disks::Persistent { size: self.storage_size.clone(), class: self.storage_class.clone() }
        };
        Ok(self.images.chosen(Settings {
            trust_domain: self.trust_domain.to_string(),
            high_availability: self.ha,
            replicas: self.replicas,
            max_replicas: self.max_replicas,
            disks,
            key: self.kek_secret.clone(),
            ..self.place.settings()
        }))
    }
}

impl ImageArgs {
    /// `settings` with the images that are named.
    fn chosen(&self, settings: Settings) -> Settings {
        Settings {
            image: self.image.clone().unwrap_or(settings.image),
            envoy_image: self.envoy_image.clone().unwrap_or(settings.envoy_image),
            ..settings
        }
    }
}

impl UpgradeArgs {
    /// The settings of `set` with what is named. Where anything is, an image that is not named stays as it
    /// is; that of the controllers, if it is of this version.
    fn chosen(&self, set: &Value, settings: Settings) -> Result<Settings, InstallError> {
        let Self { images, kek_secret, also_kek_secret, ha, .. } = self;
        let chosen = kek_secret.is_some() || also_kek_secret.is_some() || ha.is_some();
        let named = chosen || images.image.is_some() || images.envoy_image.is_some();
        let other = installed_version(set).filter(|installed| *installed != VERSION);
        if let Some(installed) = other.filter(|_| named && images.image.is_none()) {
            return Err(InstallError::OtherVersion { installed: installed.to_owned() });
        }
        let settings = images.chosen(if named { settings.with_images_of(set) } else { settings });
        let other_key = match also_kek_secret {
            Some(secret) => Some(secret.clone()).filter(|secret| !secret.is_empty()),
            None => settings.other_key.clone(),
        };
        let key = kek_secret.clone().unwrap_or_else(|| settings.key.clone());
        let high_availability = ha.unwrap_or(settings.high_availability);
        let least = if *ha == Some(true) { HA_REPLICAS } else { 0 };
        let replicas = settings.replicas.map(|replicas| replicas.max(least));
        Ok(Settings { key, other_key, high_availability, replicas, ..settings })
    }
}

impl WhereArgs {
    pub(super) fn settings(&self) -> Settings {
        Settings::new(self.mesh_name.clone(), self.mesh_namespace.clone())
    }

    pub(super) fn set(&self) -> Value {
        set_in(&self.mesh_namespace)
    }

    fn injector(&self) -> Value {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": format!("{INJECTOR}{}", self.mesh_name) },
        })
    }

    /// The other namespace whose control plane the mesh of this name has, by what a cluster has one of for
    /// each mesh.
    pub(super) async fn elsewhere(&self, cluster: &Cluster) -> Result<Option<String>, ApplyError> {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("smc-controller-{}", self.mesh_name) },
        });
        for object in [self.injector(), binding] {
            let found = cluster.find(&object).await?;
            let namespace = found.as_ref().and_then(ownership::leads_to);
            if let Some(other) = namespace.filter(|namespace| *namespace != self.mesh_namespace.as_str()) {
                return Ok(Some(other.to_owned()));
            }
        }
        Ok(None)
    }
}

/// The namespace whose control plane is to convert TrafficSplits: that which does, as long as a control plane
/// is there, else the own one.
async fn converter(cluster: &Cluster, own: &MeshNamespace) -> Result<MeshNamespace, ApplyError> {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": conversion::DEFINITION },
    });
    let converts = cluster.find(&definition).await?.as_ref().and_then(converting);
    let Some(other) = converts.filter(|namespace| namespace != own) else { return Ok(own.clone()) };
    let lives = cluster.find(&set_in(&other)).await?.is_some();
    Ok(if lives { other } else { own.clone() })
}

fn set_in(namespace: &MeshNamespace) -> Value {
    let metadata = json!({ "name": "smc-controller", "namespace": namespace.as_str() });
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata })
}

pub(super) async fn install(args: InstallArgs) -> Outcome {
    let settings = args.settings()?;
    if args.images.dry_run {
        let mut objects = all_objects(&settings)?;
        // Without the flag, none: a tool that keeps a cluster as its manifest says would take a person's
        // choice back.
        objects.extend(args.permissive.then(|| config(&settings.namespace, true)));
        output::write(&to_yaml(&objects)?)?;
        return Ok(Verdict::Ok);
    }
    let cluster = Cluster::new(args.place.kube.client().await?);
    if let Some(set) = cluster.find(&args.place.set()).await? {
        let ends = set.pointer("/metadata/deletionTimestamp").is_some();
        let error = if ends { InstallError::Ending } else { InstallError::There };
        return Err(error(settings.namespace).into());
    }
    if let Some(namespace) = args.place.elsewhere(&cluster).await? {
        return Err(InstallError::Taken { mesh: settings.mesh, namespace }.into());
    }
    if args.images.image.is_none() {
        print_progress(&preset_image(&settings.image));
    }
    let converting = converter(&cluster, &settings.namespace).await?;
    let objects = all_objects(&Settings { converting, ..settings })?;
    let defined = objects.iter().rposition(|object| object["kind"] == "CustomResourceDefinition");
    let (definitions, chart) = objects.split_at(defined.map_or(0, |last| last + 1));
    apply(&cluster, definitions).await?;
    configure(&cluster, &args.place.mesh_namespace, args.permissive).await?;
    apply(&cluster, chart).await?;
    ready(&cluster, args.images.wait, &args.place).await
}

/// What a person hears who names no image. The preset one has no registry, so a cluster asks its own.
fn preset_image(image: &str) -> String {
    format!("image     {image}, which the nodes must have or find; --image names that of your registry")
}

/// The mesh's configuration of a new installation. One that is permissive lets connections out of the mesh,
/// too, as OSM's does: an application that moves in goes on with all of its calls.
fn config(namespace: &MeshNamespace, permissive: bool) -> Value {
    let mut config = mesh_config(namespace);
    config["spec"] = json!({
        "traffic": { "enablePermissiveTrafficPolicyMode": permissive, "enableEgress": permissive },
    });
    config
}

/// Makes the mesh's configuration, unless there is one. The definition was applied; it is served soon.
async fn configure(cluster: &Cluster, namespace: &MeshNamespace, permissive: bool) -> Result<(), ApplyError> {
    let config = config(namespace, permissive);
    let deadline = Instant::now() + SERVED;
    loop {
        if let Some(found) = cluster.find(&config).await? {
            let is_permissive =
                found.pointer("/spec/traffic/enablePermissiveTrafficPolicyMode") == Some(&true.into());
            let closed = if permissive && !is_permissive { ", which is not permissive" } else { "" };
            print_progress(&format!("kept      the MeshConfig that is there{closed}"));
            return Ok(());
        }
        match cluster.apply(&config).await {
            Err(error) if error.is_not_found() && Instant::now() < deadline => sleep(LOOK).await,
            applied => {
                print_applied(applied?, &config);
                return Ok(());
            }
        }
    }
}

pub(super) async fn upgrade(args: UpgradeArgs) -> Outcome {
    let cluster = Cluster::new(args.place.kube.client().await?);
    let Some(set) = cluster.find(&args.place.set()).await? else {
        return Err(InstallError::NotThere(args.place.mesh_namespace).into());
    };
    ownership::check(&set, &args.place.mesh_name, &args.place.mesh_namespace, "upgrade")?;
    let converting = converter(&cluster, &args.place.mesh_namespace).await?;
    let installed = args.place.settings().continued(&set);
    let chosen = args.chosen(&set, Settings { converting, ..installed })?;
    let objects = all_objects(&chosen)?;
    if args.images.dry_run {
        output::write(&to_yaml(&objects)?)?;
        return Ok(Verdict::Ok);
    }
    let secrets: Vec<_> = [Some(&*chosen.key), chosen.other_key.as_deref()].into_iter().flatten().collect();
    if let Some(reason) = key::unopened(&cluster, &chosen.namespace, &secrets).await {
        return Err(InstallError::Unopened { reason, secret: chosen.key }.into());
    }
    apply(&cluster, &objects).await?;
    ready(&cluster, args.images.wait, &args.place).await
}

async fn apply(cluster: &Cluster, objects: &[Value]) -> Result<(), ApplyError> {
    for object in objects {
        print_applied(cluster.apply(object).await?, object);
    }
    Ok(())
}

fn print_applied(applied: Applied, object: &Value) {
    let what = match applied {
        Applied::Created => "created",
        Applied::Changed => "changed",
        Applied::Unchanged => "unchanged",
    };
    if let Some(name) = object_name(object) {
        print_progress(&format!("{what:9} {name}"));
    }
}

async fn ready(cluster: &Cluster, wait: Duration, place: &WhereArgs) -> Outcome {
    if !wait.is_zero() {
        wait_until_ready(cluster, wait, place).await?;
    }
    Ok(Verdict::Ok)
}

/// Waits for the controllers, and for the certificate that their webhooks are trusted by.
async fn wait_until_ready(
    cluster: &Cluster,
    wait: Duration,
    place: &WhereArgs,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let deadline = Instant::now() + wait;
    let mut said = String::new();
    let mut too_few_since = None;
    loop {
        let set = cluster.find(&place.set()).await?.unwrap_or_default();
        let missing = if let Some(missing) = rollout(&set) {
            Some(missing)
        } else {
            let injector = cluster.find(&place.injector()).await?.unwrap_or_default();
            let bundle = injector.pointer("/webhooks/0/clientConfig/caBundle").and_then(Value::as_str);
            let unsigned = bundle.is_none_or(str::is_empty);
            unsigned.then(|| "the leader has not signed the webhooks yet".to_owned())
        };
        let Some(missing) = missing else { break };
        let waits = timeout_at(deadline, asked(cluster, place, &set)).await.unwrap_or_default();
        let missing = match &waits.reason {
            Some(reason) => format!("{missing}: {reason}"),
            None => missing,
        };
        // In an election, a group that becomes smaller is one of too few for a moment.
        too_few_since = waits.too_few.then(|| too_few_since.unwrap_or_else(Instant::now));
        if let Some(since) = too_few_since
            && since.elapsed() >= IN_VAIN
        {
            return Err(InstallError::TooFew(missing).into());
        }
        if Instant::now() >= deadline {
            return Err(InstallError::NotReady(wait.as_secs(), missing).into());
        }
        if said != missing {
            print_progress(&format!("waiting   {missing}"));
            said = missing;
        }
        sleep(LOOK).await;
    }
    print_progress("ready");
    Ok(())
}

/// What controllers wait for.
#[derive(Debug, Default)]
struct Waits {
    /// In words, if one of them or its kubelet says so.
    reason: Option<String>,
    /// Whether they are too few for their group.
    too_few: bool,
}

/// What the controllers of `set` wait for.
async fn asked(cluster: &Cluster, place: &WhereArgs, set: &Value) -> Waits {
    let pods = controllers(cluster, &place.mesh_namespace).await;
    let stuck: Vec<_> = pods.iter().filter_map(|pod| stuck(pod, |_| true)).collect();
    if !stuck.is_empty() {
        return Waits { reason: Some(with_way_out(&stuck.join("; "), place)), too_few: false };
    }
    let Ok(group) = group(cluster, &place.mesh_namespace).await else { return Waits::default() };
    if let Some(reason) = too_few(&group, place.mesh_namespace.as_str(), replicas(set)) {
        return Waits { reason: Some(reason), too_few: true };
    }
    Waits { reason: group.waits_for.map(|what| format!("a controller waits for {what}")), too_few: false }
}

/// Why controllers do not start, with the command that names another image where one cannot be had. The
/// kubelet's reasons that are about images name them so.
fn with_way_out(stuck: &str, place: &WhereArgs) -> String {
    if !stuck.contains("Image") {
        return stuck.to_owned();
    }
    let flag = |name: &str, value: &str, preset: &str| {
        if value == preset { String::new() } else { format!(" {name} {value}") }
    };
    let preset = Settings::new(MeshName::default(), MeshNamespace::default());
    let mesh = flag("--mesh-name", place.mesh_name.as_str(), preset.mesh.as_str());
    let namespace = flag("--mesh-namespace", place.mesh_namespace.as_str(), preset.namespace.as_str());
    format!("{stuck}; to name another: smc upgrade{mesh}{namespace} --image IMAGE")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Upgrade {
        #[command(flatten)]
        args: UpgradeArgs,
    }

    #[test]
    fn an_image_that_cannot_be_had_comes_with_the_command_that_names_another() {
        let place = |flags: &[&str]| Upgrade::try_parse_from([&["smc"], flags].concat()).unwrap().args.place;
        let pulling = "smc-controller-0: controller: ErrImagePull (not found)";
        assert_eq!(
            with_way_out(pulling, &place(&[])),
            format!("{pulling}; to name another: smc upgrade --image IMAGE")
        );
        assert_eq!(
            with_way_out(pulling, &place(&["--mesh-name", "blue", "--mesh-namespace", "mesh"])),
            format!(
                "{pulling}; to name another: smc upgrade --mesh-name blue --mesh-namespace mesh --image IMAGE"
            )
        );
        let crashing = "smc-controller-0: controller: CrashLoopBackOff";
        assert_eq!(with_way_out(crashing, &place(&[])), crashing);
        assert!(preset_image("smc:1").contains("smc:1") && preset_image("smc:1").contains("--image"));
    }

    #[test]
    fn an_image_of_another_version_gets_no_manifests_of_this_one() {
        let set = |version: &str| {
            json!({
                "metadata": { "labels": { "app.kubernetes.io/version": version } },
                "spec": { "template": { "spec": { "containers": [{ "image": "smc:in-use" }] } } },
            })
        };
        let image = |version: &str, flags: &[&str]| {
            let Upgrade { args } = Upgrade::parse_from(["upgrade"].iter().chain(flags));
            let chosen = args.chosen(&set(version), args.place.settings());
            chosen.map(|settings| settings.image).map_err(|error| error.to_string())
        };
        let (own, other) = (format!("smc:{VERSION}"), "0.0.9");
        for flags in [["--envoy-image", "e:1"], ["--kek-secret", "k"], ["--also-kek-secret", ""]] {
            assert_eq!(image(VERSION, &flags).unwrap(), "smc:in-use", "{flags:?}");
            let refused = image(other, &flags).unwrap_err();
            assert!(refused.contains("one of 0.0.9"), "{flags:?}: {refused}");
            let named = [&flags[..], &["--image", "smc:2"]].concat();
            assert_eq!(image(other, &named).unwrap(), "smc:2", "{flags:?}");
        }
        assert_eq!(image(other, &[]).unwrap(), own);
    }

    #[test]
    fn the_settings_for_production_are_chosen_by_name_and_kept() {
        let set = json!({ "spec": { "replicas": 1 } });
        let chosen = |flags: &[&str], installed: Settings| {
            let Upgrade { args } = Upgrade::parse_from(["upgrade"].iter().chain(flags));
            let chosen = args.chosen(&set, installed).unwrap();
            (chosen.high_availability, chosen.replicas)
        };
        let place = Upgrade::parse_from(["upgrade"]).args.place;
        let installed = |high_availability: bool, replicas: u64| Settings {
            high_availability,
            replicas: Some(replicas),
            ..place.settings()
        };
        assert_eq!(chosen(&["--ha"], installed(false, 1)), (true, Some(3)));
        assert_eq!(chosen(&["--ha"], installed(false, 5)), (true, Some(5)));
        assert_eq!(chosen(&["--ha=false"], installed(true, 3)), (false, Some(3)));
        assert_eq!(chosen(&[], installed(true, 3)), (true, Some(3)));
        assert_eq!(chosen(&["--image", "smc:2"], installed(false, 1)), (false, Some(1)));
    }
}
