//! A mesh in small, in which anything may happen at any time: whoever holds a certificate that is good is believed by
//! everybody else who does, and every proxy believes every controller that it may come to.

use proptest::prelude::*;

use super::*;

/// The replicas. Proxy `n` is connected to replica `n % 2`, if it is.
const REPLICAS: [u64; 2] = [0, 1];
const PROXIES: u8 = 4;

type Roots = BTreeSet<SerialNumber>;

/// A certificate as its holder has it.
#[derive(Debug, Clone, Copy)]
struct Held {
    serial: SerialNumber,
    root: SerialNumber,
    end: Timestamp,
}

/// A proxy, as it was bootstrapped last.
#[derive(Debug, Clone)]
struct Proxy {
    connected: bool,
    /// The certificate for the control plane, and the roots, of its bootstrap.
    bootstrap: Option<(Held, Roots)>,
    /// The service certificate that it was sent, and the roots that it was sent with it.
    service: Option<(Held, Roots)>,
}

struct Mesh {
    book: Book,
    now: Timestamp,
    proxies: Vec<Proxy>,
    controllers: [Option<Held>; 2],
    /// Commands that whoever made them never heard the outcome of.
    unanswered: Vec<Operation>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Wait(Duration),
    Connect(u8),
    Disconnect(u8),
    /// A connected proxy is sent what there is, and takes it.
    Push(u8),
    /// It takes the certificate alone, and refuses the roots.
    PushInVain(u8),
    /// Everybody does what there is to do, and nothing fails.
    Settle,
    Bootstrap(u8),
    Release(u8),
    /// A replica renews the service certificates that are due.
    Renew,
    /// A replica gets itself another certificate.
    Serve(u8),
    /// A replica looks whether all of its proxies have taken the bundle.
    Look(u8),
    Rotate,
    RotateRoot,
    /// A replica plans and proposes. With `false` it does not hear the outcome, and proposes the same once more later.
    Plan(bool),
    /// What was not heard of is proposed again.
    Repeat(u8),
    Prune,
}

impl Mesh {
    /// Everybody is there and at rest.
    fn new() -> Self {
        let proxy = Proxy { connected: false, bootstrap: None, service: None };
        let mut mesh = Self {
            book: Book::new(),
            now: START,
            proxies: vec![proxy; PROXIES.into()],
            controllers: [None; 2],
            unanswered: Vec::new(),
        };
        (0..PROXIES).flat_map(|n| [Event::Bootstrap(n), Event::Connect(n)]).for_each(|e| mesh.happen(e));
        mesh.happen(Event::Settle);
        mesh
    }

    fn roots(&self) -> Roots {
        self.book.authority().trusted_roots().collect()
    }

    fn held(&self, serial: SerialNumber, issuer: SerialNumber, validity: Validity) -> Held {
        Held { serial, root: self.book.authority().root_of(issuer).unwrap(), end: validity.not_after }
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Wait(span) => self.now = now.plus(span),
            Event::Connect(n) => {
                let proxy = &mut self.proxies[usize::from(n)];
                proxy.connected = proxy.bootstrap.as_ref().is_some_and(|(held, _)| held.end >= now);
            }
            Event::Disconnect(n) => self.proxies[usize::from(n)].connected = false,
            Event::Push(n) => {
                let account = account(n);
                let Some(record) = self.book.ledger.service_certificate(&account).cloned() else { return };
                let roots = self.roots();
                if self.proxies[usize::from(n)].connected && record.validity.contains(now) {
                    let held = self.held(record.serial, record.issuer, record.validity);
                    self.proxies[usize::from(n)].service = Some((held, roots));
                }
            }
            Event::PushInVain(n) => {
                // It believes what signs, and its replica has not acknowledged what does not yet.
                let authority = self.book.authority();
                let next = authority.next_root.as_ref();
                let told = next.is_some_and(|next| next.acknowledged.contains(&(u64::from(n) % 2)));
                let signing = authority.root.serial;
                let believed = self.proxies[usize::from(n)].service.as_ref().map(|(_, roots)| roots.clone());
                let Some(believed) = believed.filter(|roots| !told && roots.contains(&signing)) else {
                    return;
                };
                self.happen(Event::Push(n));
                if let Some((_, roots)) = &mut self.proxies[usize::from(n)].service {
                    *roots = believed;
                }
            }
            Event::Settle => {
                self.happen(Event::Renew);
                (0..PROXIES).for_each(|n| self.happen(Event::Push(n)));
                for replica in 0..2 {
                    self.happen(Event::Serve(replica));
                    self.happen(Event::Look(replica));
                }
            }
            Event::Bootstrap(n) => {
                let Ok(serial) = self.book.proxy(now, n) else { return };
                let record = self.book.ledger.proxy_certificate(&serial).unwrap().clone();
                let held = self.held(serial, record.issuer, record.validity);
                let bootstrap = Some((held, self.roots()));
                self.proxies[usize::from(n)] = Proxy { connected: false, bootstrap, service: None };
            }
            Event::Release(n) => {
                self.book.apply(now, Operation::ReleaseProxy(proxy(n))).unwrap();
                let gone = &mut self.proxies[usize::from(n)];
                (gone.connected, gone.bootstrap) = (false, None);
            }
            Event::Renew => {
                let accounts = (0..PROXIES).map(account).collect();
                let wanted = crate::pki::WantedCertificates { accounts, lifetime: None };
                for account in crate::pki::plan_rotation(&wanted, &self.book.ledger, now).due {
                    let _ = self.book.service(now, &account);
                }
            }
            Event::Serve(n) => {
                let Ok(serial) = self.book.controller(now) else { return };
                let mut records = self.book.ledger.controller_certificates();
                let record = records.find(|(one, _)| **one == serial).unwrap().1.clone();
                self.controllers[usize::from(n)] = Some(self.held(serial, record.issuer, record.validity));
            }
            Event::Look(n) => {
                let roots = self.roots();
                let Some(next) = &self.book.authority().next_root else { return };
                let root = next.ca.serial;
                let of_this = self.proxies.iter().skip(n.into()).step_by(2);
                let mut connected = of_this.filter(|proxy| proxy.connected);
                if connected.all(|proxy| proxy.service.as_ref().is_some_and(|(_, held)| *held == roots)) {
                    let acknowledge = Operation::AcknowledgeRoot { replica: n.into(), root };
                    self.book.apply(now, acknowledge).unwrap();
                }
            }
            Event::Rotate => {
                let replaces = self.book.authority().issuing.serial;
                self.propose(CaStep::RotateIssuing { replaces }, true);
            }
            Event::RotateRoot => {
                let beside = self.book.authority().root.serial;
                self.propose(CaStep::TrustRoot { beside }, true);
            }
            Event::Plan(heard) => {
                if let Some(step) = self.book.plan(now, &REPLICAS, true).step {
                    self.propose(step, heard);
                }
            }
            Event::Repeat(n) => {
                if let Some(operation) = self.unanswered.get(usize::from(n)).cloned() {
                    let _ = self.book.apply(now, operation);
                }
            }
            Event::Prune => {
                self.book.apply(now, Operation::Prune).unwrap();
            }
        }
    }

    fn propose(&mut self, step: CaStep, heard: bool) {
        let Some(operation) = self.book.operation(self.now, step) else { return };
        if !heard {
            self.unanswered.push(operation.clone());
        }
        let _ = self.book.apply(self.now, operation);
    }

    /// What must hold after every event.
    fn check(&self) -> Result<(), TestCaseError> {
        let now = self.now;
        let authority = self.book.authority();
        let trusted = self.roots();
        let services: Vec<_> = self.proxies.iter().filter_map(|proxy| proxy.service.as_ref()).collect();
        let good = services.iter().filter(|(held, _)| held.end >= now);
        for (one, _) in good.clone() {
            for (other, believed) in good.clone() {
                prop_assert!(
                    believed.contains(&one.root),
                    "the holder of {} does not believe {}",
                    other.serial,
                    one.serial
                );
            }
        }
        let bootstraps = self.proxies.iter().filter_map(|proxy| proxy.bootstrap.as_ref());
        for (held, believed) in bootstraps.filter(|(held, _)| held.end >= now) {
            prop_assert!(trusted.contains(&held.root), "{} is not let in", held.serial);
            for controller in self.controllers.iter().flatten().filter(|held| held.end >= now) {
                prop_assert!(
                    believed.contains(&controller.root),
                    "{} does not believe its controller",
                    held.serial
                );
            }
        }
        for (issuer, signed) in self.book.ledger.signed(now) {
            let root = authority.root_of(issuer);
            prop_assert!(root.is_some_and(|root| trusted.contains(&root)), "{}: {:?}", issuer, signed);
            let former = authority.former_issuing.iter().find(|former| former.serial == issuer);
            let validity = former.map_or(authority.issuing.validity, |former| former.validity);
            prop_assert!(signed.last_end <= Some(validity.not_after), "outlives its issuer");
        }
        Ok(())
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    let proxy = || 0..PROXIES;
    let span = prop_oneof![
        4 => 1..3u32,
        4 => 20..60u32,
        1 => 24 * 30..24 * 400u32,
    ];
    prop_oneof![
        4 => span.prop_map(|hours| Event::Wait(HOUR * hours)),
        3 => proxy().prop_map(Event::Connect),
        1 => proxy().prop_map(Event::Disconnect),
        4 => proxy().prop_map(Event::Push),
        1 => proxy().prop_map(Event::PushInVain),
        4 => Just(Event::Settle),
        2 => proxy().prop_map(Event::Bootstrap),
        1 => proxy().prop_map(Event::Release),
        4 => Just(Event::Renew),
        2 => (0..2u8).prop_map(Event::Serve),
        4 => (0..2u8).prop_map(Event::Look),
        1 => Just(Event::Rotate),
        2 => Just(Event::RotateRoot),
        6 => any::<bool>().prop_map(Event::Plan),
        1 => (0..4u8).prop_map(Event::Repeat),
        1 => Just(Event::Prune),
    ]
}

/// What only the right order of rare events brings about.
#[test]
fn whoever_refused_a_root_is_waited_for_also_after_it_left() {
    for leaves in [true, false] {
        let mut mesh = Mesh::new();
        let old = mesh.book.authority().root.serial;
        let happen = |mesh: &mut Mesh, events: &[Event]| {
            for event in events {
                mesh.happen(*event);
                mesh.check().unwrap();
            }
        };
        happen(&mut mesh, &[Event::RotateRoot, Event::Wait(40 * HOUR), Event::Renew, Event::PushInVain(0)]);
        if leaves {
            happen(&mut mesh, &[Event::Disconnect(0), Event::Settle]);
        }
        let on = [Event::Look(0), Event::Look(1), Event::Push(1), Event::Wait(20 * HOUR), Event::Plan(true)];
        happen(&mut mesh, &on);
        happen(&mut mesh, &[Event::Wait(HOUR), Event::Renew, Event::Push(1), Event::Serve(0)]);
        assert_eq!(mesh.book.authority().root.serial, old, "{leaves}");
        happen(&mut mesh, &[Event::Settle, Event::Wait(60 * HOUR), Event::Plan(true), Event::Settle]);
        assert_ne!(mesh.book.authority().root.serial, old, "{leaves}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn whoever_is_good_is_believed_whatever_happens_in_whatever_order(
        events in proptest::collection::vec(any_event(), 0..120),
    ) {
        let mut mesh = Mesh::new();
        for event in events {
            mesh.happen(event);
            mesh.check()?;
        }
    }
}
