//! The effects of a fault. No mesh is known that causes one, so the tests make the lint find them.

mod rights;

use super::*;
use crate::catalog::Object;
use crate::catalog::fixtures::{group, http_rule, namespace, pod, port, service, target};
use smc_types::ids::TrustDomain;
use smc_types::object_ref::{Kind, ObjectRef};
use smc_types::proxy_class::AppProtocol;
use smc_xds::names;
use smc_xds::resource::Version;
use smc_xds::served_state::View;

type Name = (ResourceType, &'static str);

const OUTBOUND: [Name; 2] =
    [(ResourceType::Cluster, "shop/b|80"), (ResourceType::Listener, names::OUTBOUND_LISTENER)];
const INBOUND: [Name; 1] = [(ResourceType::Route, "inbound_80_http")];
const CERTIFICATE: Name = (ResourceType::Secret, names::SERVICE_CERTIFICATE);

fn certify(account: &str, key: &str) -> Input {
    let certificate = ServiceCertificate { chain_pem: "chain".to_owned(), key_pem: key.to_owned().into() };
    Input::Certificate(account.parse().unwrap(), certificate)
}

/// a and b call each other. `protocol` is b's, which a's outbound half shows; `callers` are a's,
/// which its inbound half shows.
fn shop(protocol: AppProtocol, callers: &[&str], key: &str) -> Vec<Input> {
    let one = |name: &str, address: &str, protocol, callers: &[&str]| {
        let id = format!("shop/{name}");
        let mut service = service(&id, name, &[port(80, protocol)]);
        service.cluster_ips = vec![address.replace("10.1", "10.9").parse().unwrap()];
        let rule = http_rule("shop/all", None);
        [
            Object::from(pod(&id, &id, name, address)),
            Object::from(service),
            target(&format!("shop/to-{name}"), &id, callers, &[rule]),
        ]
    };
    let objects = [
        vec![namespace("shop"), group("shop/all", &["/"])],
        one("a", "10.1.0.1", AppProtocol::Http, callers).to_vec(),
        one("b", "10.1.0.2", protocol, &["shop/a"]).to_vec(),
    ];
    let objects = objects.concat().into_iter().map(|object| Input::Source(SourceEvent::Upsert(object)));
    let bundle = Input::Bundle(TrustBundle { pem: "roots".to_owned() });
    objects.chain([bundle, certify("shop/a", key), certify("shop/b", "its own key")]).collect()
}

fn before() -> Vec<Input> {
    shop(AppProtocol::Http, &["shop/b"], "key")
}

/// Differs from [`before`] in both halves of the snapshot of a, and in its certificate.
fn after() -> Vec<Input> {
    shop(AppProtocol::Http2, &["shop/b", "shop/c"], "new key")
}

fn empty() -> Compiler {
    Compiler::new(Settings::new(TrustDomain::new("cluster.local").unwrap()))
}

/// The configuration of a.
fn view(compiler: &Compiler) -> Option<View> {
    compiler.served_state().view(&pod("shop/a", "shop/a", "a", "10.1.0.1").proxy_name())
}

fn version(view: &View, (kind, name): Name) -> Version {
    view.get(kind, name).unwrap_or_else(|| panic!("{name} is served")).version
}

/// Makes the lint find a fault in the first certificate of a.
fn poison_certificate(compiler: &mut Compiler) {
    compiler.apply([certify("shop/a", "key")]);
    let held = compiler.certificates.get_mut(&"shop/a".parse().unwrap()).unwrap();
    held.facts = Arc::new(lint::Facts { faults: vec!["is poisoned".to_owned()], ..lint::Facts::default() });
}

fn poisoned(compiler: &Compiler) -> usize {
    compiler.problems().iter().filter(|problem| problem.message.contains("poisoned")).count()
}

/// The configuration of a after these inputs alone.
fn good(inputs: Vec<Input>) -> View {
    let mut compiler = empty();
    compiler.apply(inputs);
    view(&compiler).unwrap()
}

#[test]
fn a_fault_in_one_half_holds_back_that_half_alone_until_it_is_gone() {
    let (old, new) = (good(before()), good(after()));
    for (faulty, fine) in [(&OUTBOUND[..], &INBOUND[..]), (&INBOUND, &OUTBOUND)] {
        let mut compiler = empty();
        compiler.apply(before());
        let (kind, name) = faulty[0];
        compiler.interner.poison(new.get(kind, name).unwrap());
        compiler.apply(after());
        let now = view(&compiler).unwrap();
        for &one in faulty {
            assert_ne!(version(&old, one), version(&new, one), "{one:?} differs");
            assert_eq!(version(&now, one), version(&old, one), "{one:?} stays");
        }
        for &one in fine.iter().chain([&CERTIFICATE]) {
            assert_ne!(version(&old, one), version(&new, one), "{one:?} differs");
            assert_eq!(version(&now, one), version(&new, one), "{one:?} is held back by {name}");
        }
        assert_eq!(lint::lint(&now), []);
        assert_eq!(poisoned(&compiler), 1);

        compiler.apply([certify("shop/a", "newest key")]);
        let now = view(&compiler).unwrap();
        assert_ne!(version(&now, CERTIFICATE), version(&new, CERTIFICATE), "a renewal is not held back");
        assert_eq!(version(&now, faulty[0]), version(&old, faulty[0]));
        assert_eq!(poisoned(&compiler), 1, "it is still reported");

        compiler.apply(before());
        let now = view(&compiler).unwrap();
        for &one in OUTBOUND.iter().chain(&INBOUND).chain([&CERTIFICATE]) {
            assert_eq!(version(&now, one), version(&old, one));
        }
        assert_eq!(poisoned(&compiler), 0);
    }
}

#[test]
fn a_class_of_which_a_half_was_never_good_waits() {
    let old = good(before());
    for (kind, name) in [OUTBOUND[0], INBOUND[0], CERTIFICATE] {
        let mut compiler = empty();
        if (kind, name) == CERTIFICATE {
            poison_certificate(&mut compiler);
        } else {
            compiler.interner.poison(old.get(kind, name).unwrap());
        }
        compiler.apply(before());
        assert!(view(&compiler).is_none(), "{name}");
        assert!(poisoned(&compiler) > 0, "{name}");
        compiler.apply(after());
        assert_eq!(poisoned(&compiler), 0, "{name}");
        assert!(view(&compiler).is_some(), "{name}");
    }
}

#[test]
fn an_identity_that_left_and_returns_is_not_served_its_old_certificate() {
    let mut compiler = empty();
    compiler.apply(before());
    let pod = pod("shop/a", "shop/a", "a", "10.1.0.1");
    let gone = ObjectRef::Namespaced(Kind::Pod, pod.id.as_name().clone());
    compiler.apply([Input::Source(SourceEvent::Remove(gone))]);
    compiler.apply([Input::NoCertificate("shop/a".parse().unwrap())]);
    compiler.apply([Input::Source(SourceEvent::Upsert(Object::from(pod)))]);
    assert!(view(&compiler).is_none(), "the old one may have ended");
    compiler.apply([certify("shop/a", "new key")]);
    assert!(view(&compiler).is_some());

    let served = view(&compiler).unwrap();
    compiler.apply([Input::NoCertificate("shop/a".parse().unwrap())]);
    compiler.apply(after().into_iter().filter(|input| matches!(input, Input::Source(_))));
    let now = view(&compiler).unwrap();
    assert_eq!(
        version(&now, CERTIFICATE),
        version(&served, CERTIFICATE),
        "an identity that still has proxies keeps its configuration"
    );
}

#[test]
fn a_private_key_is_held_by_nothing_but_what_is_served() {
    let mut compiler = empty();
    compiler.apply(before());
    assert!(compiler.interner.holds("shop/b|80"));
    assert!(!compiler.interner.holds(names::SERVICE_CERTIFICATE));
}

#[test]
fn a_bundle_is_served_once_every_half_of_every_class_has_it() {
    let bundle = |pem: &str| TrustBundle { pem: pem.to_owned() };
    let (old, new) = (bundle("roots"), bundle("other roots"));
    let secret = (ResourceType::Secret, names::INBOUND_VALIDATION);
    let served = |compiler: &Compiler| (compiler.serves(&old), compiler.serves(&new));
    let mut compiler = empty();
    assert_eq!(served(&compiler), (false, false));
    compiler.apply(before());
    assert_eq!(served(&compiler), (true, false));
    let was = version(&view(&compiler).unwrap(), secret);
    compiler.apply([Input::Bundle(new.clone())]);
    assert_eq!(served(&compiler), (false, true));
    assert_ne!(version(&view(&compiler).unwrap(), secret), was);
    // Nothing else takes it back.
    compiler.apply(after().into_iter().filter(|input| !matches!(input, Input::Bundle(_))));
    assert_eq!(served(&compiler), (false, true));

    // A fault leaves the half as it was, and with it the roots in it.
    for (kind, name) in [OUTBOUND[0], INBOUND[0]] {
        let mut compiler = empty();
        compiler.apply(before());
        let next = good(after());
        compiler.interner.poison(next.get(kind, name).unwrap());
        let others = after().into_iter().filter(|input| !matches!(input, Input::Bundle(_)));
        compiler.apply(others.chain([Input::Bundle(new.clone())]));
        assert_eq!(served(&compiler), (false, false), "{name}");
        compiler.apply(before().into_iter().filter(|input| !matches!(input, Input::Bundle(_))));
        assert_eq!(served(&compiler), (false, true), "{name}");
    }
}
