//! The rule against a second reading of it, over drawn namespaces that grow, shrink and are read again.

use proptest::prelude::*;

use super::*;

const OWN: &str = "own";
const KINDS: [Kind; 3] = [Kind::Service, Kind::Pod, Kind::ServiceAccount];

fn share(limit: u64) -> Share {
    Share::new(limit, &MeshNamespace::new(OWN).unwrap())
}

fn object(kind: Kind, namespace: &str, name: &str) -> ObjectRef {
    ObjectRef::Namespaced(kind, NamespacedName::new(namespace, name).unwrap())
}

/// All objects that there are, with their weights.
type Objects = BTreeMap<ObjectRef, Weight>;

/// What a store has: the rule, and the contents of objects.
struct Replica {
    share: Share,
    contents: BTreeSet<ObjectRef>,
}

impl Replica {
    fn new(limit: u64, max_out: usize) -> Self {
        Self { share: Share { max_out, ..share(limit) }, contents: BTreeSet::new() }
    }

    /// An object arrives, with its content.
    fn put(&mut self, reference: &ObjectRef, weight: Weight) {
        let moves = self.share.set(reference, weight);
        self.follow(&moves);
        if self.share.holds(reference) {
            self.contents.insert(reference.clone());
        } else {
            self.contents.remove(reference);
        }
    }

    fn remove(&mut self, reference: &ObjectRef) {
        let moves = self.share.remove(reference);
        self.follow(&moves);
        self.contents.remove(reference);
    }

    fn follow(&mut self, moves: &Moves) {
        for given_up in &moves.given_up {
            self.contents.remove(given_up);
            assert!(!self.share.holds(given_up));
        }
        assert!(moves.taken_in.iter().all(|taken_in| self.share.holds(taken_in)));
    }

    /// What is held, by the names of objects.
    fn held(&self) -> BTreeSet<ObjectRef> {
        let names = self.share.members.iter().flat_map(|(namespace, member)| {
            let itself = (member.itself > 0).then(|| ObjectRef::Namespace(namespace.to_string()));
            let groups = member.groups.iter().flat_map(|(kind, group)| {
                group.held.iter().map(|(_, name)| ObjectRef::Namespaced(*kind, name.clone()))
            });
            itself.into_iter().chain(groups)
        });
        names.collect()
    }

    /// Lists a kind, in this order or backwards.
    fn read(&mut self, objects: &Objects, kind: Kind, namespace: Option<&str>, backwards: bool) {
        self.share.begin(kind, namespace);
        let is_listed = |reference: &ObjectRef| {
            matches!(reference, ObjectRef::Namespaced(of, _) if *of == kind)
                && namespace.is_none_or(|of| reference.namespace() == of)
        };
        let mut listed: Vec<_> = objects.iter().filter(|(reference, _)| is_listed(reference)).collect();
        if backwards {
            listed.reverse();
        }
        for (reference, weight) in listed {
            self.put(reference, *weight);
        }
        let moves = self.share.end();
        self.follow(&moves);
    }

    /// The namespaces of which something is missing.
    fn wanted(&self) -> Option<Arc<str>> {
        let missing = self.held().difference(&self.contents).next().map(|of| Arc::from(of.namespace()));
        missing.or(self.share.unknown().cloned())
    }

    /// Reads what is wanted until nothing is.
    fn read_wanted(&mut self, objects: &Objects, backwards: bool) {
        let mut count = 0;
        while let Some(wanted) = self.wanted() {
            for kind in KINDS {
                self.read(objects, kind, Some(&wanted), backwards);
            }
            count += 1;
            assert!(count < 100, "it never ends");
        }
    }
}

/// What has to be held, from the rule as it is written: levels of all objects, in order, up to the first one
/// that does not fit.
fn oracle(objects: &Objects, limit: u64) -> BTreeSet<ObjectRef> {
    let is_kept =
        |reference: &ObjectRef| matches!(reference, ObjectRef::Namespace(_)) || reference.namespace() == OWN;
    let mut held: BTreeSet<ObjectRef> = objects.keys().filter(|of| is_kept(of)).cloned().collect();
    let mut total: u64 = held.iter().map(|of| u64::from(objects[of])).sum();
    let namespaces: BTreeSet<&str> =
        objects.keys().map(ObjectRef::namespace).filter(|of| *of != OWN).collect();
    let mut levels = Vec::new();
    for namespace in namespaces {
        let mut of_namespace = Vec::new();
        for kind in KINDS {
            let mut of_kind: Vec<(Weight, &ObjectRef)> = objects
                .iter()
                .filter(|(of, _)| matches!(of, ObjectRef::Namespaced(is, _) if *is == kind))
                .filter(|(of, _)| of.namespace() == namespace)
                .map(|(of, weight)| (*weight, of))
                .collect();
            of_kind.sort();
            let mut sum = 0;
            for (weight, of) in of_kind {
                sum += u64::from(weight);
                of_namespace.push((sum, kind, weight, of));
            }
        }
        of_namespace.sort();
        let itself = objects.get(&ObjectRef::Namespace(namespace.to_owned()));
        let mut sum = itself.map_or(0, |weight| u64::from(*weight));
        for (_, _, weight, of) in of_namespace {
            sum += u64::from(weight);
            levels.push((sum, namespace, weight, of));
        }
    }
    levels.sort();
    for (_, _, weight, of) in levels {
        total += u64::from(weight);
        if total > limit {
            break;
        }
        held.insert(of.clone());
    }
    held
}

/// The namespaces that have no more than their max-min fair share, by the filling of water: the level rises
/// until all room is used. What Namespaces themselves weigh is below it in any case.
fn within_their_share(objects: &Objects, limit: u64) -> BTreeSet<String> {
    let mut demands: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (of, weight) in objects {
        let (least, all) = demands.entry(of.namespace()).or_default();
        *all += u64::from(*weight);
        *least += if matches!(of, ObjectRef::Namespace(_)) { u64::from(*weight) } else { 0 };
    }
    let (_, of_own) = demands.remove(OWN).unwrap_or_default();
    let used = |level: u64| demands.values().map(|(least, all)| (*all).min(level).max(*least)).sum::<u64>();
    let most = demands.values().map(|(_, all)| *all).max().unwrap_or_default();
    let Some(level) = (0..=most).rev().find(|level| of_own + used(*level) <= limit) else {
        return BTreeSet::new();
    };
    demands.into_iter().filter(|(_, (_, all))| *all <= level).map(|(name, _)| name.to_owned()).collect()
}

/// A change of the cluster, or of what is known of it.
#[derive(Debug, Clone)]
enum Step {
    /// An object is there and weighs this, or is gone.
    Object(usize, usize, usize, Option<Weight>),
    /// A Namespace is there.
    Namespace(usize, Weight),
    /// A kind is listed.
    List(usize, bool),
    /// What is wanted is read, if anything is.
    Read(bool),
}

const NAMESPACES: [&str; 5] = ["a", "b", "c", "d", OWN];

fn step(heaviest: Weight) -> impl Strategy<Value = Step> {
    let weight = prop::option::weighted(0.75, 1..=heaviest);
    prop_oneof![
        // The first namespace has the most, and the last ones have little.
        20 => (prop_oneof![6 => Just(0usize), 3 => Just(1), 1 => 2..5usize], 0..3usize, 0..25usize, weight)
            .prop_map(|(namespace, kind, name, weight)| Step::Object(namespace, kind, name, weight)),
        1 => (0..5usize, 1..=heaviest).prop_map(|(namespace, weight)| Step::Namespace(namespace, weight)),
        1 => (0..3usize, any::<bool>()).prop_map(|(kind, backwards)| Step::List(kind, backwards)),
        1 => any::<bool>().prop_map(Step::Read),
    ]
}

/// Takes the steps, and checks after each what must hold at any time. Returns the objects.
fn run(replica: &mut Replica, steps: &[Step], limit: u64) -> Objects {
    let mut objects = Objects::new();
    for step in steps {
        match step {
            Step::Object(namespace, kind, name, weight) => {
                let of = object(KINDS[*kind], NAMESPACES[*namespace], &format!("x{name}"));
                if let Some(weight) = weight {
                    objects.insert(of.clone(), *weight);
                    replica.put(&of, *weight);
                } else if objects.remove(&of).is_some() {
                    replica.remove(&of);
                }
            }
            Step::Namespace(namespace, weight) => {
                let of = ObjectRef::Namespace(NAMESPACES[*namespace].to_owned());
                objects.insert(of.clone(), *weight);
                replica.put(&of, *weight);
            }
            Step::List(kind, backwards) => replica.read(&objects, KINDS[*kind], None, *backwards),
            Step::Read(backwards) => replica.read_wanted(&objects, *backwards),
        }
        let (held, within) = (replica.held(), within_their_share(&objects, limit));
        let is_kept = |of: &&ObjectRef| matches!(of, ObjectRef::Namespace(_)) || of.namespace() == OWN;
        let total: u64 = held.iter().map(|of| u64::from(objects[of])).sum();
        assert!(total <= limit || held.iter().all(|of| is_kept(&of)), "{total} of {limit}");
        assert_eq!(total, replica.share.total);
        let members = replica.share.members.iter().filter(|(name, _)| ***name != *OWN);
        assert!(members.map(|(_, member)| member).all(|member| !member.is_unfair()), "{step:?}");
        let remembers = objects.len() <= replica.share.max_out;
        for of in objects.keys() {
            let is_small = within.contains(of.namespace()) || is_kept(&of);
            assert!(!is_small || held.contains(of) || !remembers, "{of} is given up, of a small namespace");
        }
        if remembers {
            assert_eq!(held, oracle(&objects, limit));
        }
    }
    objects
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_held_follows_from_the_objects_alone(
        steps in prop_oneof![
            prop::collection::vec(step(1), 1..150),
            prop::collection::vec(step(3), 1..150),
            prop::collection::vec(step(40), 1..150),
        ],
        limit in prop_oneof![0..30u64, 30..90u64, 90..2_000u64],
        max_out in prop_oneof![Just(1_000usize), 1..4usize],
        backwards in any::<bool>(),
    ) {
        let mut replica = Replica::new(limit, max_out);
        let objects = run(&mut replica, &steps, limit);
        replica.read_wanted(&objects, backwards);
        let expected = oracle(&objects, limit);
        prop_assert_eq!(replica.held(), expected.clone());
        prop_assert_eq!(&replica.contents, &expected);
        // The same on a replica that starts now, and reads kinds in another order.
        let mut fresh = Replica::new(limit, max_out);
        for (of, weight) in objects.iter().filter(|(of, _)| matches!(of, ObjectRef::Namespace(_))) {
            fresh.put(of, *weight);
        }
        for kind in KINDS.into_iter().rev() {
            fresh.read(&objects, kind, None, backwards);
        }
        for of in objects.keys().filter(|of| within_their_share(&objects, limit).contains(of.namespace())) {
            prop_assert!(fresh.contents.contains(of), "{} is lost at a start", of);
        }
        fresh.read_wanted(&objects, !backwards);
        prop_assert_eq!(fresh.contents, expected);
    }
}

#[test]
fn a_start_loses_nothing_of_a_small_namespace_whatever_comes_first() {
    for flood_first in [true, false] {
        let mut replica = Replica::new(100, MAX_OUT);
        let flood: Vec<_> =
            (0..1_000).map(|n| object(Kind::ServiceAccount, "flood", &format!("x{n}"))).collect();
        let small: Vec<_> = (0..49).map(|n| object(Kind::Pod, "small", &format!("x{n}"))).collect();
        let both = if flood_first { [flood, small.clone()] } else { [small.clone(), flood] };
        for of in both.concat() {
            replica.put(&of, 1);
        }
        assert!(small.iter().all(|of| replica.contents.contains(of)));
        assert_eq!((replica.share.total, replica.contents.len()), (100, 100));
        let expected =
            Shortage { namespace: "flood", held: 51, count: 51, out: vec![(Kind::ServiceAccount, 949)] };
        assert_eq!(replica.share.shortages().collect::<Vec<_>>(), [expected]);
        assert_eq!(replica.wanted(), None, "there is no room");
        replica.remove(&small[0]);
        assert_eq!(replica.wanted().as_deref(), Some("flood"), "there is room for one more");
    }
}

#[test]
fn the_kind_that_holds_the_most_gives_up_the_heaviest() {
    let mut share = share(10);
    for (kind, name, weight) in
        [(Kind::Pod, "light", 1), (Kind::Pod, "heavy", 4), (Kind::Pod, "middle", 2), (Kind::Service, "s", 3)]
    {
        assert_eq!(share.set(&object(kind, "shop", name), weight), Moves::default());
    }
    let heavy = object(Kind::Pod, "shop", "heavy");
    let moves = share.set(&object(Kind::ServiceAccount, "shop", "a"), 1);
    assert_eq!(moves.given_up, BTreeSet::from([heavy.clone()]));
    share.set(&object(Kind::Pod, "shop", "heavier"), 5);
    assert!(!share.holds(&object(Kind::Pod, "shop", "heavier")), "it comes after one that is not held");
    share.set(&object(Kind::Pod, "shop", "lighter"), 1);
    assert!(share.holds(&object(Kind::Pod, "shop", "lighter")), "it comes before");
    let expected = Shortage { namespace: "shop", held: 8, count: 5, out: vec![(Kind::Pod, 2)] };
    assert_eq!(share.shortages().collect::<Vec<_>>(), [expected]);
    let moves = share.remove(&object(Kind::Service, "shop", "s"));
    assert_eq!(moves.taken_in, BTreeSet::from([heavy]));
    share.forget("shop");
    assert_eq!((share.total, share.shortages().count(), share.members.len()), (0, 0, 0));
}

#[test]
fn namespaces_themselves_and_the_own_one_give_up_nothing() {
    let mut replica = Replica::new(3, MAX_OUT);
    for n in 0..9 {
        replica.put(&object(Kind::MeshConfig, OWN, &format!("x{n}")), 1);
        replica.put(&ObjectRef::Namespace(format!("n{n}")), 1);
    }
    replica.put(&object(Kind::Pod, "n0", "a"), 1);
    assert_eq!((replica.held().len(), replica.contents.len()), (18, 18));
    assert!(!replica.share.holds(&object(Kind::Pod, "n0", "a")));
}

#[test]
fn what_is_not_held_takes_a_bounded_memory_and_is_found_again() {
    let mut replica = Replica::new(10, 3);
    let mut objects: Objects = (0..100).map(|n| (object(Kind::Pod, "a", &format!("x{n:02}")), 1)).collect();
    for (of, weight) in &objects {
        replica.put(of, *weight);
    }
    let group = &replica.share.members["a"].groups[&Kind::Pod];
    assert_eq!((group.held.len(), group.out.len(), group.weights.len()), (10, 3, 13));
    for n in 0..20 {
        let of = object(Kind::Pod, "a", &format!("x{n:02}"));
        objects.remove(&of);
        replica.remove(&of);
    }
    assert_eq!(replica.share.unknown().map(|of| &**of), Some("a"));
    replica.read_wanted(&objects, false);
    assert_eq!(replica.contents, oracle(&objects, 10));
}

#[test]
fn the_first_that_is_forgotten_is_asked_about_when_it_changes() {
    let name = |n: usize| object(Kind::Pod, "a", &format!("x{n:02}"));
    for (change, asks) in [
        ((|_| {}) as fn(&mut Replica), false),
        (|replica| replica.put(&object(Kind::Pod, "a", "x11"), 1), false),
        (|replica| replica.put(&object(Kind::Pod, "a", "x11"), 2), true),
        (|replica| replica.remove(&object(Kind::Pod, "a", "x11")), true),
        (|replica| replica.remove(&object(Kind::Pod, "a", "x12")), false),
        (|replica| replica.put(&object(Kind::Pod, "a", "x13"), 1), false),
    ] {
        let mut replica = Replica::new(10, 1);
        for n in 0..13 {
            replica.put(&name(n), 1);
        }
        change(&mut replica);
        assert_eq!(replica.share.unknown().is_some(), asks);
        replica.share.begin(Kind::Pod, Some("a"));
        assert_eq!(replica.share.unknown(), None);
    }
}

/// Pods take the place of a Service that comes before them, while it is not known which Pod is the first of
/// those that are forgotten. Once it is known, nothing changes, and nothing asks.
#[test]
fn a_namespace_is_fair_while_the_first_forgotten_is_not_known() {
    let mut replica = Replica::new(4, 1);
    let mut objects = Objects::new();
    for (kind, name, weight) in [
        (Kind::Service, "light", 1),
        (Kind::Pod, "x1", 1),
        (Kind::Pod, "x2", 1),
        (Kind::Service, "heavy", 2),
        (Kind::Pod, "x3", 2),
        (Kind::Pod, "x4", 3),
        (Kind::Pod, "x4", 1),
        (Kind::Pod, "x5", 1),
    ] {
        objects.insert(object(kind, "a", name), weight);
        replica.put(&object(kind, "a", name), weight);
    }
    replica.read_wanted(&objects, false);
    assert_eq!(replica.contents, oracle(&objects, 4));
}

#[test]
fn a_list_that_names_nothing_forgotten_is_no_reason_to_read_again() {
    let [keeper, first, second] =
        [object(Kind::Pod, OWN, "k"), object(Kind::Pod, "a", "x0"), object(Kind::Pod, "a", "x1")];
    let mut replica = Replica::new(1, 1);
    for of in [&keeper, &first, &second] {
        replica.put(of, 1);
    }
    for of in [&keeper, &second, &first] {
        replica.remove(of);
    }
    assert_eq!(replica.share.unknown().map(|of| &**of), Some("a"));
    replica.read_wanted(&Objects::new(), false);
    assert_eq!(replica.share.unknown(), None);
}

/// What an event costs does not grow with the number of objects.
#[test]
fn an_event_moves_as_much_as_it_brings() {
    let mut share = share(20_000);
    for n in 0..30_000 {
        let moves = share.set(&object(Kind::Pod, ["a", "b"][n % 2], &format!("x{n}")), 1);
        assert!(moves.given_up.len() <= 1 && moves.taken_in.is_empty());
    }
    let heavy = object(Kind::Pod, "c", "heavy");
    assert_eq!(share.set(&heavy, 3_000).given_up.len(), 3_000);
    assert_eq!(share.remove(&heavy).taken_in.len(), 3_000);
}
