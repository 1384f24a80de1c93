use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::*;
use crate::policy::fixtures::{egress, group, host, name};
use EgressProtocol::{Http, Https, Tcp, TcpServerFirst};
use smc_api::smi::{RouteGroup, TcpRoute};

/// Routes `/a` and `/b` in groups of these names, and none in `shop/none`.
struct Groups([RouteGroup; 3]);

impl Routes for Groups {
    fn http_route_group(&self, name: &NamespacedName) -> Option<&RouteGroup> {
        self.0.iter().find(|group| group.id == *name)
    }

    fn tcp_route(&self, _: &NamespacedName) -> Option<&TcpRoute> {
        None
    }
}

fn groups() -> Groups {
    Groups([group("shop/a", &["/a"]), group("shop/b", &["/b"]), group("shop/none", &[])])
}

/// The hosts, networks, protocol and groups of an object on one port.
type Words = (&'static str, &'static str, EgressProtocol, &'static str);

/// What these objects come to, in words.
fn come_to(objects: &[Words]) -> String {
    let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let objects: Vec<_> = objects
        .iter()
        .enumerate()
        .map(|(place, (hosts, networks, protocol, groups))| {
            let hosts: Vec<_> = list(hosts).iter().map(|text| host(text)).collect();
            let networks = list(networks);
            let networks: Vec<_> = networks.iter().map(String::as_str).collect();
            let object = egress(
                &format!("shop/e{place}"),
                (!hosts.is_empty()).then_some(&hosts[..]),
                (!networks.is_empty()).then_some(&networks[..]),
                &[(80, *protocol)],
            );
            let matches = (!groups.is_empty())
                .then(|| list(groups).iter().map(|group| name(&format!("shop/{group}"))).collect());
            Egress { matches, ..object }
        })
        .collect();
    let ports = egress_ports(&groups(), &objects);
    let mut text = String::new();
    for (network, way) in ports.values().flat_map(|port| &port.networks) {
        // A name that is resolved holds over both.
        if *network == EVERYWHERE[1]
            && !objects.iter().flat_map(|object| &object.networks).flatten().any(|of| of == network)
        {
            continue;
        }
        write!(text, "{network}: ").unwrap();
        let EgressWay::ByName { tls, http } = way else {
            text.push_str("anything\n");
            continue;
        };
        for (host, target) in tls {
            write!(text, "tls {host} {target:?}, ").unwrap();
        }
        for (host, routes) in http {
            for route in routes {
                let path = route.matched.as_ref().and_then(|matched| matched.path.as_ref());
                let path = path.map_or("", |path| path.as_prefix());
                write!(text, "http {host}{path} {:?}, ", route.target).unwrap();
            }
        }
        text.push('\n');
    }
    text.replace(", \n", "\n").replace(": \n", ": closed\n").trim_end().to_owned()
}

#[test]
fn each_object_allows_what_all_of_its_conditions_allow() {
    for (case, object, expected) in [
        ("a name", ("a.example", "", Https, ""), "0.0.0.0/0: tls a.example Resolved"),
        (
            "a name in networks",
            ("a.example", "192.0.2.0/24", Https, ""),
            "192.0.2.0/24: tls a.example Dialled",
        ),
        ("networks", ("", "192.0.2.0/24", Https, ""), "192.0.2.0/24: tls * Dialled"),
        ("HTTP by name", ("a.example", "", Http, ""), "0.0.0.0/0: http a.example Resolved"),
        ("HTTP in networks", ("", "192.0.2.0/24", Http, ""), "192.0.2.0/24: http * Dialled"),
        ("requests", ("a.example", "", Http, "a"), "0.0.0.0/0: http a.example/a Resolved"),
        ("no requests", ("a.example", "", Http, "none"), ""),
        ("groups that are gone", ("a.example", "", Http, "gone"), ""),
        (
            "what is encrypted has no requests",
            ("a.example", "", Https, "gone"),
            "0.0.0.0/0: tls a.example Resolved",
        ),
        ("a star", ("*.example", "192.0.2.0/24", Https, ""), "192.0.2.0/24: tls *.example Dialled"),
        ("a star without networks", ("*.example *", "", Https, ""), ""),
        ("a star beside a name", ("*.example a.test", "", Https, ""), "0.0.0.0/0: tls a.test Resolved"),
        ("TCP in networks", ("", "192.0.2.0/24", Tcp, ""), "192.0.2.0/24: anything"),
        (
            "TCP, whatever the names",
            ("a.example", "192.0.2.0/24", TcpServerFirst, ""),
            "192.0.2.0/24: anything",
        ),
        ("TCP without networks", ("a.example", "", Tcp, ""), ""),
    ] {
        assert_eq!(come_to(&[object]), expected, "{case}");
    }
}

/// What several objects come to, in whatever order they are declared.
fn check(rows: impl IntoIterator<Item = (&'static str, Vec<Words>, &'static str)>) {
    for (case, mut objects, expected) in rows {
        assert_eq!(come_to(&objects), expected, "{case}");
        objects.reverse();
        assert_eq!(come_to(&objects), expected, "{case}, the other way round");
    }
}

#[test]
fn several_objects_unite_and_no_two_ways_overlap() {
    check([
        (
            "names unite",
            vec![("a.example", "", Https, ""), ("b.example a.example", "", Https, "")],
            "0.0.0.0/0: tls a.example Resolved, tls b.example Resolved",
        ),
        (
            "what is within a network that is granted already has the same way",
            vec![("", "192.0.2.0/24", Tcp, ""), ("", "192.0.2.7/32 192.0.2.0/25", Tcp, "")],
            "192.0.2.0/24: anything\n192.0.2.0/25: anything\n192.0.2.7/32: anything",
        ),
        (
            "a network within another one has all that holds around it",
            vec![("a.example", "192.0.0.0/16", Https, ""), ("b.example", "192.0.2.0/24", Https, "")],
            "192.0.0.0/16: tls a.example Dialled\n\
             192.0.2.0/24: tls a.example Dialled, tls b.example Dialled",
        ),
        (
            "names that are resolved hold in every network",
            vec![("a.example", "", Https, ""), ("b.example", "192.0.2.0/24", Https, "")],
            "0.0.0.0/0: tls a.example Resolved\n192.0.2.0/24: tls a.example Resolved, tls b.example Dialled",
        ),
        (
            "where both hold, the address that was dialled counts",
            vec![("a.example", "", Https, ""), ("a.example", "192.0.2.0/24", Https, "")],
            "0.0.0.0/0: tls a.example Resolved\n192.0.2.0/24: tls a.example Dialled",
        ),
        (
            "a star holds for the names under it",
            vec![("a.example", "", Https, ""), ("*.example", "192.0.2.0/24", Https, "")],
            "0.0.0.0/0: tls a.example Resolved\n192.0.2.0/24: tls *.example Dialled, tls a.example Dialled",
        ),
        (
            "a star does not hold for its own name",
            vec![("example", "", Https, ""), ("*.example", "192.0.2.0/24", Https, "")],
            "0.0.0.0/0: tls example Resolved\n192.0.2.0/24: tls *.example Dialled, tls example Resolved",
        ),
        (
            "a network that holds every address beside a name",
            vec![("a.example", "", Https, ""), ("b.example", "0.0.0.0/0", Https, "")],
            "0.0.0.0/0: tls a.example Resolved, tls b.example Dialled\n\
             0.0.0.0/8: tls a.example Resolved\n\
             100.100.100.200/32: tls a.example Resolved\n\
             127.0.0.0/8: tls a.example Resolved\n\
             168.63.129.16/32: tls a.example Resolved\n\
             169.254.0.0/16: tls a.example Resolved\n\
             224.0.0.0/4: tls a.example Resolved\n\
             240.0.0.0/4: tls a.example Resolved",
        ),
        (
            "whatever may be sent includes what goes by name",
            vec![("a.example", "", Https, ""), ("", "192.0.2.0/24", Http, ""), ("", "192.0.2.0/24", Tcp, "")],
            "0.0.0.0/0: tls a.example Resolved\n192.0.2.0/24: anything",
        ),
    ]);
}

#[test]
fn requests_of_several_objects_unite() {
    check([
        (
            "requests unite",
            vec![("a.example", "", Http, "a"), ("a.example", "", Http, "b none")],
            "0.0.0.0/0: http a.example/a Resolved, http a.example/b Resolved",
        ),
        (
            "all requests include some",
            vec![("a.example", "", Http, "a"), ("a.example", "", Http, "")],
            "0.0.0.0/0: http a.example Resolved",
        ),
        (
            "requests of a star hold for the names under it",
            vec![("a.example", "192.0.2.0/24", Http, "a"), ("*.example", "192.0.2.0/24", Http, "b")],
            "192.0.2.0/24: http *.example/b Dialled, http a.example/a Dialled, \
             http a.example/b Dialled",
        ),
        (
            "requests that may go where they were dialled to come first",
            vec![("a.example", "", Http, ""), ("a.example", "192.0.2.0/24", Http, "a")],
            "0.0.0.0/0: http a.example Resolved\n\
             192.0.2.0/24: http a.example/a Dialled, http a.example Resolved",
        ),
    ]);
}

#[test]
fn a_wide_network_includes_neither_the_machine_nor_its_link() {
    let all = come_to(&[("", "0.0.0.0/0 ::/0", Tcp, "")]);
    for never in NEVER_IMPLIED {
        assert!(all.contains(&format!("{never}: closed")), "{never}: {all}");
    }
    assert!(all.contains("0.0.0.0/0: anything") && all.contains("::/0: anything"), "{all}");
    // Written down, it is meant.
    for named in ["169.254.169.254/32", "169.254.0.0/16", "127.0.0.0/8"] {
        assert_eq!(come_to(&[("", named, Tcp, "")]), format!("{named}: anything"));
        let beside = come_to(&[("", "0.0.0.0/0", Tcp, ""), ("", named, Tcp, "")]);
        assert!(beside.contains(&format!("{named}: anything")), "{beside}");
        assert!(beside.contains("224.0.0.0/4: closed"), "{beside}");
    }
    let half = come_to(&[("", "128.0.0.0/1", Tcp, "")]);
    assert!(half.contains("169.254.0.0/16: closed") && !half.contains("127.0.0.0/8"), "{half}");
    // Where a connection is dialled to means nothing for a name that the sidecar resolves.
    let named = come_to(&[("a.example", "", Https, ""), ("", "0.0.0.0/0", Tcp, "")]);
    assert!(named.contains("169.254.0.0/16: tls a.example Resolved"), "{named}");
}

#[test]
fn from_the_first_object_without_room_on_none_has_effect() {
    let hosts: Vec<_> = (0..20).map(|place| host(&format!("h{place}.example"))).collect();
    let networks: Vec<_> = (0..=255).map(|place| format!("198.51.{place}.0/24")).collect();
    let networks: Vec<_> = networks.iter().map(String::as_str).collect();
    let survey =
        |objects: &[Egress]| EgressSurvey::of(&groups(), objects, MAX_EGRESS, &mut GroupSizes::new());
    let small = |id: &str| egress(id, Some(&[host("a.example")]), None, &[(443, Https)]);
    // 256 networks, 20 names and 256 ports: 1,310,720 chains.
    let ports: Vec<_> = (1000..1256).map(|number| (number, Https)).collect();
    let large = egress("shop/b", Some(&hosts), Some(&networks), &ports);
    let found = survey(&[small("shop/a"), large, small("shop/c")]);
    assert_eq!(found.cut, Some(name("shop/b")));
    let has_room = ["shop/a", "shop/b", "shop/c"].map(|id| found.has_room_for(&name(id)));
    assert_eq!(has_room, [true, false, false]);
    // Hosts cost the same in one object and in many.
    let many = |objects: usize, hosts: usize| -> Vec<Egress> {
        let of = |object: usize| {
            let hosts: Vec<_> = (0..hosts).map(|place| host(&format!("h{object}-{place}.example"))).collect();
            egress(&format!("shop/e{object:04}"), Some(&hosts), None, &[(443, Https)])
        };
        (0..objects).map(of).collect()
    };
    for (objects, hosts, fit) in [(1, 400, true), (400, 1, true), (20, 20, true), (1000, 20, false)] {
        assert_eq!(survey(&many(objects, hosts)).cut.is_none(), fit, "{objects} with {hosts} hosts");
    }
}

#[test]
fn a_port_for_tls_and_for_a_server_that_speaks_first_is_delayed() {
    let objects = [
        egress("shop/a", Some(&[host("a.example")]), None, &[(443, Https), (444, Https)]),
        egress("shop/b", None, Some(&["192.0.2.0/24"]), &[(443, TcpServerFirst), (445, TcpServerFirst)]),
    ];
    let survey = EgressSurvey::of(&groups(), &objects, MAX_EGRESS, &mut GroupSizes::new());
    assert_eq!(survey, EgressSurvey { cut: None, delayed: [443].into() });
}

/// A connection out of the mesh, on the one port that there is.
#[derive(Debug, Clone)]
struct Call {
    dialled: IpAddr,
    /// `None` is neither TLS nor HTTP.
    protocol: Option<EgressProtocol>,
    name: &'static str,
    path: &'static str,
}

const NAMES: [&str; 4] = ["a.example", "b.a.example", "example", "c.test"];
const HOSTS: [&str; 6] = ["a.example", "*.example", "*.a.example", "*", "example", "c.test"];
const NETWORKS: [&str; 7] = [
    "0.0.0.0/0",
    "169.0.0.0/8",
    "169.254.0.0/16",
    "169.254.169.254/32",
    "192.0.0.0/8",
    "192.0.2.0/24",
    "192.0.2.7/32",
];
const ADDRESSES: [&str; 6] =
    ["10.0.0.1", "169.1.1.1", "169.254.1.1", "169.254.169.254", "192.0.2.1", "192.0.2.7"];

fn an_egress() -> impl Strategy<Value = Egress> {
    let hosts = proptest::option::of(subsequence(&HOSTS[..], 0..4));
    let networks = proptest::option::of(subsequence(&NETWORKS[..], 0..4));
    let groups = proptest::option::weighted(0.3, subsequence(vec!["shop/a", "shop/b", "shop/none"], 0..3));
    (hosts, networks, select(vec![Http, Https, Tcp]), groups).prop_map(
        |(hosts, networks, protocol, groups)| {
            let hosts = hosts.map(|hosts| hosts.into_iter().map(host).collect::<Vec<_>>());
            let object = egress("shop/e", hosts.as_deref(), networks.as_deref(), &[(80, protocol)]);
            Egress { matches: groups.map(|groups| groups.into_iter().map(name).collect()), ..object }
        },
    )
}

fn a_call() -> impl Strategy<Value = Call> {
    let protocol = select(vec![None, Some(Http), Some(Https)]);
    (select(&ADDRESSES[..]), protocol, select(&NAMES[..]), select(vec!["/a", "/b", "/c"])).prop_map(
        |(dialled, protocol, name, path)| Call { dialled: dialled.parse().unwrap(), protocol, name, path },
    )
}

/// Where a call goes by the documents: each object by itself, and the address that was dialled first.
fn by_the_documents(objects: &[Egress], call: &Call) -> Option<EgressTarget> {
    let holds = |network: &str| network.parse::<IpNet>().unwrap().contains(&call.dialled);
    let mut found: BTreeSet<EgressTarget> = BTreeSet::new();
    for object in objects {
        let (_, protocol) = object.ports.first().unwrap();
        let networks = object.networks.iter().flatten();
        let is_link = holds("169.254.0.0/16");
        let dialled = networks
            .filter(|network| network.contains(&call.dialled))
            .any(|network| !is_link || network.to_string().starts_with("169.254."));
        if *protocol == Tcp {
            found.extend(dialled.then_some(EgressTarget::Dialled));
            continue;
        }
        if call.protocol != Some(*protocol) {
            continue;
        }
        if *protocol == Http
            && let Some(groups) = &object.matches
            && !groups.contains(&name(&format!("shop{}", call.path)))
        {
            continue;
        }
        let named = |text: &str| text == call.name;
        let covers = |text: &str| {
            text == "*" || named(text) || text.strip_prefix('*').is_some_and(|dot| call.name.ends_with(dot))
        };
        let hosts: Option<Vec<_>> =
            object.hosts.as_ref().map(|hosts| hosts.iter().map(ToString::to_string).collect());
        if object.networks.is_some() {
            let fits = hosts.is_none_or(|hosts| hosts.iter().any(|host| covers(host)));
            found.extend((dialled && fits).then_some(EgressTarget::Dialled));
        } else if hosts.is_some_and(|hosts| hosts.iter().any(|host| named(host))) {
            found.insert(EgressTarget::Resolved);
        }
    }
    found.pop_first()
}

/// Where Envoy sends it: by the most specific network, and the most specific name in it.
fn by_envoy(ports: &EgressPorts, call: &Call) -> Option<EgressTarget> {
    let networks = &ports.get(&80)?.networks;
    let holding = networks.keys().filter(|network| network.contains(&call.dialled));
    let nearest = holding.max_by_key(|network| network.prefix_len())?;
    let EgressWay::ByName { tls, http } = networks.get(nearest)? else {
        return Some(EgressTarget::Dialled);
    };
    let asked = EgressHost::Named(call.name.to_owned());
    match call.protocol? {
        Https => asked.and_wider().find_map(|host| tls.get(&host).copied()),
        Http => {
            let routes = asked.and_wider().find_map(|host| http.get(&host))?;
            let takes = |route: &&EgressRoute| {
                let path = route.matched.as_ref().and_then(|matched| matched.path.as_ref());
                path.is_none_or(|path| path.as_prefix() == call.path)
            };
            routes.iter().find(takes).map(|route| route.target)
        }
        Tcp | TcpServerFirst => None,
    }
}

proptest! {
    #[test]
    fn what_objects_come_to_is_what_each_says(
        objects in vec(an_egress(), 0..6), calls in vec(a_call(), 1..20)
    ) {
        let objects: Vec<_> = objects.into_iter().enumerate()
            .map(|(place, object)| Egress { id: name(&format!("shop/e{place}")), ..object }).collect();
        let ports = egress_ports(&groups(), &objects);
        for call in calls {
            prop_assert_eq!(
                by_envoy(&ports, &call), by_the_documents(&objects, &call), "{:?} of {:#?}", call, objects
            );
        }
    }
}
