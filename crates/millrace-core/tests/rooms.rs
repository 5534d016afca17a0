//! The modules of this crate do not know each other: a change in one cannot break another. Only in `commit` they meet.

use std::fs;
use std::path::{Path, PathBuf};

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

#[test]
fn modules_do_not_know_each_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    assert!(found.len() > 10);
    let mut strangers = Vec::new();
    for path in found {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let own = inside.iter().next().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&path).unwrap();
        for other in text.split("crate::").skip(1) {
            let name: String = other.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if own != "lib" && own != "commit" && name != own {
                strangers.push(format!("{}: crate::{name}", inside.display()));
            }
        }
    }
    assert!(strangers.is_empty(), "{strangers:?}");
}
