//! A small mesh: proxies, two replicas and an operator, each with its events.

use proptest::prelude::*;

use super::super::*;
use crate::rules::RootRole;

/// The replicas. Proxy `n` connects to replica `n % 2`.
const REPLICAS: [u64; 2] = [0, 1];
pub(super) const PROXIES: u8 = 4;

type Roots = BTreeSet<SerialNumber>;

/// A certificate as its holder has it.
#[derive(Debug, Clone, Copy)]
struct Held {
    serial: SerialNumber,
    root: SerialNumber,
    end: Timestamp,
}

/// A proxy since its latest bootstrap.
#[derive(Debug, Clone)]
struct Proxy {
    connected: bool,
    /// The bootstrap's certificate for the control plane, and its roots.
    bootstrap: Option<(Held, Roots)>,
    /// The service certificate that the proxy accepted, and the roots that it accepted.
    service: Option<(Held, Roots)>,
}

pub(super) struct Mesh {
    pub(super) book: Book,
    now: Timestamp,
    proxies: Vec<Proxy>,
    controllers: [Option<Held>; 2],
    /// Operations whose proposer did not learn the outcome.
    unanswered: Vec<Operation>,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Event {
    Wait(Duration),
    Connect(u8),
    Disconnect(u8),
    /// A connected proxy receives the current certificate and roots, and accepts both.
    Push(u8),
    /// A connected proxy accepts the certificate and refuses the roots.
    PushRefusingRoots(u8),
    /// Every replica and every connected proxy catches up, without a failure.
    Settle,
    Bootstrap(u8),
    Release(u8),
    /// A replica renews the due service certificates.
    Renew,
    /// A replica takes the identity of a proxy for unused, whether or not it is.
    Forget(u8),
    /// A replica issues itself a new certificate.
    Serve(u8),
    /// A replica acknowledges the next root if all of its proxies have accepted the bundle.
    Acknowledge(u8),
    RotateIssuing,
    RotateRoot,
    /// A replica plans and proposes. With `false` it does not learn the outcome, and may propose
    /// the same again.
    Plan(bool),
    /// An operation without a known outcome is proposed again.
    Repeat(u8),
    Prune,
    /// The roles of the roots that are declared; `None` where that is not known.
    Declare(Option<[Option<RootRole>; 3]>),
}

impl Mesh {
    /// Every proxy is connected and up to date.
    pub(super) fn new(book: Book) -> Self {
        let proxy = Proxy { connected: false, bootstrap: None, service: None };
        let mut mesh = Self {
            book,
            now: START,
            proxies: vec![proxy; PROXIES.into()],
            controllers: [None; 2],
            unanswered: Vec::new(),
        };
        (0..PROXIES).flat_map(|n| [Event::Bootstrap(n), Event::Connect(n)]).for_each(|e| mesh.happen(e));
        mesh.happen(Event::Settle);
        mesh
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Wait(span) => self.now = self.now.plus(span),
            Event::Connect(n) => self.connect(n),
            Event::Disconnect(n) => self.proxies[usize::from(n)].connected = false,
            Event::Push(n) => self.push(n),
            Event::PushRefusingRoots(n) => self.push_refusing_roots(n),
            Event::Settle => self.settle(),
            Event::Bootstrap(n) => self.bootstrap(n),
            Event::Release(n) => self.release(n),
            Event::Renew => self.renew(),
            Event::Forget(n) => self.forget(n),
            Event::Serve(n) => self.serve(n),
            Event::Acknowledge(n) => self.acknowledge(n),
            Event::RotateIssuing => self.rotate_issuing(),
            Event::RotateRoot => self.rotate_root(),
            Event::Plan(answered) => self.plan(answered),
            Event::Repeat(n) => self.repeat(n),
            Event::Declare(None) => self.book.declared = DeclaredRoots::Unknown,
            Event::Declare(Some(roles)) => {
                self.book.declared = DeclaredRoots::of(declared::named(&roles));
            }
            Event::Prune => {
                self.book.apply(self.now, Operation::Prune).unwrap();
            }
        }
    }

    fn settle(&mut self) {
        self.renew();
        (0..PROXIES).for_each(|n| self.push(n));
        for replica in 0..2 {
            self.serve(replica);
            self.acknowledge(replica);
        }
    }

    fn roots(&self) -> Roots {
        self.book.authority().trusted_roots().collect()
    }

    fn held(&self, serial: SerialNumber, issuer: SerialNumber, validity: Validity) -> Held {
        Held { serial, root: self.book.authority().root_of(issuer).unwrap(), end: validity.not_after }
    }
}

/// Proxies.
impl Mesh {
    fn connect(&mut self, n: u8) {
        let now = self.now;
        let proxy = &mut self.proxies[usize::from(n)];
        proxy.connected = proxy.bootstrap.as_ref().is_some_and(|(held, _)| held.end >= now);
    }

    fn push(&mut self, n: u8) {
        let Some(record) = self.book.ledger.service_certificate(&account(n)).cloned() else { return };
        if self.proxies[usize::from(n)].connected && record.validity.contains(self.now) {
            let held = self.held(record.serial, record.issuer, record.validity);
            self.proxies[usize::from(n)].service = Some((held, self.roots()));
        }
    }

    /// Only a proxy that trusts the signing root, and whose replica has not acknowledged the next
    /// one, can refuse it.
    fn push_refusing_roots(&mut self, n: u8) {
        let authority = self.book.authority();
        let next = authority.next_root.as_ref();
        let acknowledged = next.is_some_and(|next| next.acknowledged.contains(&(u64::from(n) % 2)));
        let signing = authority.root.serial;
        let trusted = self.proxies[usize::from(n)].service.as_ref().map(|(_, roots)| roots.clone());
        let Some(trusted) = trusted.filter(|roots| !acknowledged && roots.contains(&signing)) else { return };
        self.push(n);
        if let Some((_, roots)) = &mut self.proxies[usize::from(n)].service {
            *roots = trusted;
        }
    }

    fn bootstrap(&mut self, n: u8) {
        let Ok(serial) = self.book.proxy(self.now, n) else { return };
        // A bootstrap that no proxy uses within a day is worth nothing.
        self.book.apply(self.now, Operation::ClaimProxyCertificate(serial)).unwrap();
        let record = self.book.ledger.proxy_certificate(&serial).unwrap().clone();
        let held = self.held(serial, record.issuer, record.validity);
        let bootstrap = Some((held, self.roots()));
        self.proxies[usize::from(n)] = Proxy { connected: false, bootstrap, service: None };
    }

    fn release(&mut self, n: u8) {
        self.book.apply(self.now, Operation::ReleaseProxy(proxy(n))).unwrap();
        let gone = &mut self.proxies[usize::from(n)];
        (gone.connected, gone.bootstrap) = (false, None);
    }
}

/// Replicas and the operator.
impl Mesh {
    fn renew(&mut self) {
        let accounts = (0..PROXIES).map(account).collect();
        let wanted = crate::rules::WantedCertificates { accounts, lifetime: None };
        for account in crate::rules::plan_renewal(&wanted, &self.book.ledger, self.now).due {
            let _ = self.book.service(self.now, &account);
        }
    }

    fn forget(&mut self, n: u8) {
        let Some(record) = self.book.ledger.service_certificate(&account(n)) else { return };
        let unused = ForgetService { account: account(n), serial: record.serial };
        // Former rules refuse it.
        let _ = self.book.apply(self.now, Operation::ForgetServices(vec![unused]));
    }

    fn serve(&mut self, n: u8) {
        let Ok(serial) = self.book.controller(self.now) else { return };
        let mut records = self.book.ledger.controller_certificates();
        let record = records.find(|(one, _)| **one == serial).unwrap().1.clone();
        self.controllers[usize::from(n)] = Some(self.held(serial, record.issuer, record.validity));
    }

    fn acknowledge(&mut self, n: u8) {
        let roots = self.roots();
        let Some(next) = &self.book.authority().next_root else { return };
        let root = next.ca.serial;
        let of_replica = self.proxies.iter().skip(n.into()).step_by(2);
        let mut connected = of_replica.filter(|proxy| proxy.connected);
        if connected.all(|proxy| proxy.service.as_ref().is_some_and(|(_, trusted)| *trusted == roots)) {
            let acknowledge = Operation::AcknowledgeRoot(AcknowledgeRoot { replica: n.into(), root });
            self.book.apply(self.now, acknowledge).unwrap();
        }
    }

    fn rotate_issuing(&mut self) {
        let replaces = self.book.authority().issuing.serial;
        self.propose(CaStep::RotateIssuing { replaces }, true);
    }

    fn rotate_root(&mut self) {
        let beside = self.book.authority().root.serial;
        self.propose(CaStep::TrustRoot { beside }, true);
    }

    fn plan(&mut self, answered: bool) {
        if let Some(step) = self.book.plan(self.now, &REPLICAS, true).step {
            self.propose(step, answered);
        }
    }

    fn repeat(&mut self, n: u8) {
        if let Some(operation) = self.unanswered.get(usize::from(n)).cloned() {
            let _ = self.book.apply(self.now, operation);
        }
    }

    fn propose(&mut self, step: CaStep, answered: bool) {
        let Some(operation) = self.book.operation(self.now, step) else { return };
        if !answered {
            self.unanswered.push(operation.clone());
        }
        let _ = self.book.apply(self.now, operation);
    }
}

/// The properties that hold after every event.
impl Mesh {
    pub(super) fn check(&self) -> Result<(), TestCaseError> {
        self.check_services()?;
        self.check_bootstraps()?;
        self.check_issuers()?;
        self.check_declared()
    }

    /// An object declares one root, which is trusted.
    fn check_declared(&self) -> Result<(), TestCaseError> {
        let (authority, trusted) = (self.book.authority(), self.roots());
        let of_objects: Vec<_> =
            declared::objects().filter_map(|object| authority.root_declared_by(&object)).collect();
        prop_assert!(of_objects.iter().all(|root| trusted.contains(root)), "{of_objects:?}");
        let declared = trusted.iter().filter(|root| authority.declared_by(**root).is_some());
        prop_assert_eq!(declared.count(), of_objects.len());
        Ok(())
    }

    /// Holders of valid service certificates trust each other.
    fn check_services(&self) -> Result<(), TestCaseError> {
        let services = self.proxies.iter().filter_map(|proxy| proxy.service.as_ref());
        let valid: Vec<_> = services.filter(|(held, _)| held.end >= self.now).collect();
        for (one, _) in &valid {
            for (other, trusted) in &valid {
                prop_assert!(
                    trusted.contains(&one.root),
                    "the holder of {} does not trust {}",
                    other.serial,
                    one.serial
                );
            }
        }
        Ok(())
    }

    /// Proxies with a valid bootstrap certificate are trusted, and trust every controller.
    fn check_bootstraps(&self) -> Result<(), TestCaseError> {
        let trusted = self.roots();
        let bootstraps = self.proxies.iter().filter_map(|proxy| proxy.bootstrap.as_ref());
        for (held, roots) in bootstraps.filter(|(held, _)| held.end >= self.now) {
            prop_assert!(trusted.contains(&held.root), "{} is not admitted", held.serial);
            for controller in self.controllers.iter().flatten().filter(|held| held.end >= self.now) {
                prop_assert!(
                    roots.contains(&controller.root),
                    "{} does not trust its controller",
                    held.serial
                );
            }
        }
        Ok(())
    }

    /// Issuers of live certificates are under a trusted root, and end no earlier.
    fn check_issuers(&self) -> Result<(), TestCaseError> {
        let (authority, trusted) = (self.book.authority(), self.roots());
        for (issuer, signed) in self.book.ledger.signed(self.now) {
            let root = authority.root_of(issuer);
            prop_assert!(root.is_some_and(|root| trusted.contains(&root)), "{}: {:?}", issuer, signed);
            let former = authority.former_issuing.iter().find(|former| former.serial == issuer);
            let validity = former.map_or(authority.issuing.validity, |former| former.validity);
            prop_assert!(signed.last_end <= Some(validity.not_after), "outlives its issuer");
        }
        Ok(())
    }
}
