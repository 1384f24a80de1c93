//! No circles: neither between the modules of a package nor between its files, but for a module and
//! those inside it.
//!
//! The paths in each file (`use` and elsewhere) are resolved to the module that defines what they
//! name; a name that a module re-exports leads to the module that it comes from. Code for tests
//! does not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use syn::visit::Visit;
use syn::{Item, UseTree};

use crate::packages::members;
use crate::sources::{files, is_for_tests, read};

/// A module by its path from the root of the package, which is empty for the root.
type Module = Vec<String>;

/// The directories in which libraries, programs and tests begin, with the names of the files.
type Roots = BTreeMap<String, BTreeSet<String>>;

type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// The modules of a package, what they re-export, and the paths that they use.
#[derive(Default)]
struct Package {
    modules: BTreeSet<Module>,
    /// Module and name → the path that the name stands for.
    exports: BTreeMap<(Module, String), Vec<String>>,
    paths: Vec<(Module, Vec<String>)>,
}

impl Package {
    /// The modules below `directory`, in which `roots` are the files that a library, a program or a test
    /// begins with. What begins in a folder below is none of it.
    fn read(directory: &str, roots: &Roots) -> Self {
        let mut package = Self::default();
        let own = &roots[directory];
        let root = ["lib", "main"].into_iter().find(|root| own.contains(*root));
        let inner: Vec<String> = roots
            .keys()
            .map(|other| format!("{other}/"))
            .filter(|other| other.starts_with(&format!("{directory}/")))
            .collect();
        for file in files(directory, "rs") {
            let inside =
                file.strip_prefix(directory).unwrap().trim_start_matches('/').trim_end_matches(".rs");
            let mut module: Module = inside.split('/').map(ToOwned::to_owned).collect();
            if inner.iter().any(|inner| file.starts_with(inner.as_str()))
                || module.iter().any(|name| name == "tests")
            {
                continue;
            }
            if root == Some(inside) {
                module.clear();
            } else if own.contains(inside) {
                continue;
            }
            let parsed = syn::parse_file(&read(&file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            package.modules.insert(module.clone());
            let mut paths = Paths { module: module.clone(), found: Vec::new(), exports: Vec::new() };
            paths.visit_file(&parsed);
            package.paths.extend(paths.found.into_iter().map(|path| (module.clone(), path)));
            for (name, path) in paths.exports {
                package.exports.insert((module.clone(), name), path);
            }
        }
        package
    }

    /// The module that defines what `path` names, if it is one of this package.
    fn resolve(&self, path: &[String], depth: usize) -> Option<Module> {
        let mut module = Module::new();
        for (index, name) in path.iter().enumerate() {
            let deeper = [module.clone(), vec![name.clone()]].concat();
            if self.modules.contains(&deeper) {
                module = deeper;
                continue;
            }
            if let Some(target) = self.exports.get(&(module.clone(), name.clone())).filter(|_| depth < 8) {
                let path = [target.clone(), path[index + 1..].to_vec()].concat();
                return self.resolve(&path, depth + 1);
            }
            break;
        }
        self.modules.contains(&module).then_some(module)
    }

    fn arrows(&self) -> Arrows {
        let mut arrows = Arrows::new();
        for (from, path) in &self.paths {
            let Some(to) = self.resolve(path, 0) else { continue };
            if !from.starts_with(&to) && !to.starts_with(from) {
                arrows.entry(from.clone()).or_default().insert(to);
            }
        }
        arrows
    }
}

/// Collects the paths of a file that begin inside its package, from the root of the package.
struct Paths {
    module: Module,
    found: Vec<Vec<String>>,
    exports: Vec<(String, Vec<String>)>,
}

impl Paths {
    /// `None` for a path that leads elsewhere, or to a name of this very module.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        match path.first()?.as_str() {
            "crate" => Some(path[1..].to_vec()),
            "self" => Some([self.module.clone(), path[1..].to_vec()].concat()),
            "super" => {
                let mut above = self.module.clone();
                let mut rest = path;
                while rest.first().is_some_and(|name| name == "super") {
                    above.pop()?;
                    rest = &rest[1..];
                }
                Some([above, rest.to_vec()].concat())
            }
            // In this edition a path may begin with a module that is declared here, or with a package.
            _ => Some([self.module.clone(), path.to_vec()].concat()),
        }
    }

    fn use_tree(&mut self, tree: &UseTree, prefix: &[String], exported: bool) {
        match tree {
            UseTree::Path(path) => {
                self.use_tree(&path.tree, &[prefix, &[path.ident.to_string()]].concat(), exported);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.use_tree(tree, prefix, exported);
                }
            }
            UseTree::Name(name) => {
                self.used(prefix, &name.ident.to_string(), &name.ident.to_string(), exported);
            }
            UseTree::Rename(name) => {
                self.used(prefix, &name.ident.to_string(), &name.rename.to_string(), exported);
            }
            UseTree::Glob(_) => self.found.extend(self.absolute(prefix)),
        }
    }

    fn used(&mut self, prefix: &[String], name: &str, alias: &str, exported: bool) {
        let path = if name == "self" { prefix.to_vec() } else { [prefix, &[name.to_owned()]].concat() };
        let Some(path) = self.absolute(&path) else { return };
        if exported {
            self.exports.push((alias.to_owned(), path.clone()));
        }
        self.found.push(path);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Use(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            _ => return syn::visit::visit_item(self, item),
        };
        if is_for_tests(attributes) {
            return;
        }
        if let Item::Use(item) = item {
            // What a module imports for itself is a name in it, too, that its children see through `super`.
            self.use_tree(&item.tree, &[], true);
        } else {
            syn::visit::visit_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.found.extend(self.absolute(&names));
        }
        syn::visit::visit_path(self, path);
    }
}

/// The circles: the sets of modules of which each can be reached from each.
fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reached = |from: &Module| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Module> = arrows.get(from).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module.clone()) {
                next.extend(arrows.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let reachable: BTreeMap<&Module, BTreeSet<Module>> =
        arrows.keys().map(|module| (module, reached(module))).collect();
    let mut circles = BTreeSet::new();
    for (module, from_here) in &reachable {
        let mut circle: Vec<Module> = from_here
            .iter()
            .filter(|other| reachable.get(other).is_some_and(|reached| reached.contains(*module)))
            .cloned()
            .collect();
        circle.sort();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// Of all packages, as their manifests say.
fn roots() -> Roots {
    let mut roots = Roots::new();
    for directory in members().values() {
        for line in read(&format!("{directory}/Cargo.toml")).lines() {
            if let Some(path) = line.strip_prefix("path = \"").and_then(|rest| rest.strip_suffix(".rs\"")) {
                let path = format!("{directory}/{path}");
                let (folder, file) = path.trim_start_matches("./").rsplit_once('/').unwrap();
                roots.entry(folder.to_owned()).or_default().insert(file.to_owned());
            }
        }
    }
    roots
}

/// The circles of all packages, each with the arrows in it; `depth` is how many names of a module's
/// path count.
fn report(depth: usize) -> String {
    let mut report = String::new();
    let roots = roots();
    for directory in roots.keys() {
        let mut arrows = Arrows::new();
        for (from, tos) in Package::read(directory, &roots).arrows() {
            let cut = |module: &Module| module.iter().take(depth).cloned().collect::<Module>();
            for to in tos.iter().map(cut) {
                if to != cut(&from) && !to.is_empty() && !from.is_empty() {
                    arrows.entry(cut(&from)).or_default().insert(to);
                }
            }
        }
        for circle in circles(&arrows) {
            writeln!(report, "{directory}:").unwrap();
            for from in &circle {
                let to = arrows[from].iter().filter(|to| circle.contains(to)).map(|to| to.join("::"));
                writeln!(report, "  {} → {}", from.join("::"), to.collect::<Vec<_>>().join(", ")).unwrap();
            }
        }
    }
    report
}

#[test]
fn no_circle_between_the_modules_of_a_package() {
    let circles = report(1);
    assert!(circles.is_empty(), "{circles}");
}

#[test]
fn no_circle_between_files_but_parent_and_child() {
    let circles = report(usize::MAX);
    assert!(circles.is_empty(), "{circles}");
}

#[test]
fn a_circle_is_found_also_through_a_name_that_a_parent_imports() {
    let mut package = Package::default();
    for module in ["a", "a::one", "a::two", "b"] {
        package.modules.insert(module.split("::").map(ToOwned::to_owned).collect());
    }
    let path = |text: &str| text.split("::").map(ToOwned::to_owned).collect::<Vec<_>>();
    package.exports.insert((path("a"), "Two".to_owned()), path("a::two::Two"));
    package.paths = vec![(path("a::one"), path("a::Two")), (path("a::two"), path("a::one::One"))];
    assert_eq!(circles(&package.arrows()), [vec![path("a::one"), path("a::two")]]);
    package.paths = vec![(path("a::one"), path("a::Two")), (path("b"), path("a::one::One"))];
    assert_eq!(circles(&package.arrows()), Vec::<Vec<Module>>::new());
}

/// What Envoy is sent is a function of intents, so what proxies share is equal by construction. The compiler
/// alone holds the catalog, and asks it for intents.
#[test]
fn translation_reads_intents_and_neither_objects_nor_the_catalog() {
    let mut wrong = Vec::new();
    let own = ["src/mesh/translate", "src/mesh/lint"];
    let files = own.iter().flat_map(|part| [vec![format!("{part}.rs")], files(part, "rs")].concat());
    for file in files {
        let text = read(&file);
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let compiles = file.starts_with("src/mesh/translate/compiler");
        let forbidden: &[&str] = if compiles { &["smc_api"] } else { &["smc_api", "Catalog"] };
        if file.ends_with("/tests.rs") {
            continue;
        }
        for name in forbidden
            .iter()
            .filter(|name| code.lines().any(|line| !line.contains("//") && line.contains(**name)))
        {
            wrong.push(format!("{file} names {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
