//! The modules of this crate do not know each other: a change in one cannot break another. Only in `commit` they meet.
//! Inside a module, no two files know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module as the names that lead to it, from the root of the crate.
type Module = Vec<String>;

/// What each file names of the crate, by the module that it is.
type Uses = BTreeMap<Module, BTreeSet<Module>>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

fn module_of(inside: &Path) -> Module {
    let names = inside.with_extension("");
    let names = names.iter().map(|name| name.to_str().unwrap().to_owned());
    names.filter(|name| name != "mod" && name != "lib").collect()
}

/// The paths from `crate::` and `super::` on in the code of `module`, as paths from the root; comments and tests aside.
fn paths_in(text: &str, module: &Module) -> BTreeSet<Module> {
    let code = text.lines().take_while(|line| line.trim() != "#[cfg(test)]" && line.trim() != "mod tests {");
    let code: Vec<&str> = code.map(|line| line.split("//").next().unwrap()).collect();
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let joined = code.join("\n");
    let mut found = BTreeSet::new();
    let mut rest = joined.as_str();
    while let Some(start) = rest.find(is_part) {
        let (path, after) = rest[start..].split_at(rest[start..].find(|c| !is_part(c)).unwrap_or(rest.len() - start));
        // Of a list in braces, each name.
        let list = after.strip_prefix('{').filter(|_| path.ends_with("::")).and_then(|list| list.split('}').next());
        for name in list.unwrap_or_default().split(',') {
            let name = name.trim().trim_end_matches(|c| !is_part(c));
            found.extend(absolute(&format!("{path}{name}"), module));
        }
        rest = after;
    }
    found
}

fn absolute(path: &str, module: &Module) -> Option<Module> {
    let names: Vec<&str> = path.split("::").filter(|name| !name.is_empty()).collect();
    let n_up = names.iter().take_while(|name| **name == "super").count();
    let from = match names.first() {
        Some(&"crate") if names.len() > 1 => 0,
        Some(&"super") if names.len() > n_up => module.len().checked_sub(n_up)?,
        _ => return None,
    };
    let rest = names.iter().skip(n_up.max(1)).map(|name| (*name).to_owned());
    Some(module[..from].iter().cloned().chain(rest).collect())
}

fn uses_of(texts: &BTreeMap<Module, String>) -> Uses {
    let known = |path: Module| (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|each| texts.contains_key(each));
    let of = |module: &Module, text: &String| {
        let named = paths_in(text, module).into_iter().filter_map(known);
        named.filter(|other| other != module).collect()
    };
    texts.iter().map(|(module, text)| (module.clone(), of(module, text))).collect()
}

fn crate_texts() -> BTreeMap<Module, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    assert!(found.len() > 10);
    // Tests may know everything.
    found.retain(|path| !path.file_stem().unwrap().to_str().unwrap().ends_with("tests"));
    let module = |path: &Path| module_of(path.strip_prefix(&root).unwrap());
    found.iter().map(|path| (module(path), fs::read_to_string(path).unwrap())).collect()
}

/// Modules that know each other, by way of others or at once; one circle if there are several.
fn circle(uses: &Uses) -> Option<Vec<String>> {
    fn visit(at: &Module, uses: &Uses, way: &mut Vec<Module>, done: &mut BTreeSet<Module>) -> Option<Vec<String>> {
        if let Some(start) = way.iter().position(|each| each == at) {
            return Some(way[start..].iter().chain([at]).map(|each| each.join("::")).collect());
        }
        if !done.insert(at.clone()) {
            return None;
        }
        way.push(at.clone());
        let found = uses[at].iter().find_map(|other| visit(other, uses, way, done));
        way.pop();
        found
    }
    let mut done = BTreeSet::new();
    uses.keys().find_map(|module| visit(module, uses, &mut vec![], &mut done))
}

#[test]
fn modules_do_not_know_each_other() {
    let mut strangers = Vec::new();
    for (module, others) in uses_of(&crate_texts()) {
        let own = module.first().cloned().unwrap_or_default();
        let others = others.iter().filter(|other| other[0] != own);
        if own != "commit" && !own.is_empty() {
            strangers.extend(others.map(|other| format!("{}: {}", module.join("::"), other.join("::"))));
        }
    }
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[test]
fn no_two_files_know_each_other() {
    assert_eq!(circle(&uses_of(&crate_texts())), None);
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let module = |path: &str| path.split("::").map(str::to_owned).collect::<Module>();
    let of = |files: &[(&str, &str)]| {
        let texts = files.iter().map(|(path, text)| (module(path), (*text).to_owned())).collect();
        circle(&uses_of(&texts)).map(|names| names.join(" "))
    };
    let task = ("slot::task", "use super::written;");
    let back = Some("slot::task slot::written slot::task".to_owned());
    assert_eq!(of(&[task, ("slot::written", "use super::task::Failure;")]), back);
    assert_eq!(of(&[task, ("slot::written", "use crate::slot::task::{self, Failure};")]), back);
    assert_eq!(of(&[task, ("slot::written", "use super::{other, task};")]), back);
    assert_eq!(of(&[task, ("slot::written", "fn open() -> super::task::Failure {}")]), back);
    assert_eq!(of(&[task, ("slot::written", "// use super::task::Failure;")]), None);
    assert_eq!(of(&[task, ("slot::written", "#[cfg(test)]\nmod tests {\n    use super::super::task;\n}")]), None);
}
