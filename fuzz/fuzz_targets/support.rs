//! What the fuzz targets share.

use std::io::BufReader;
use std::path::Path;

use millrace_core::join::joiner;
use millrace_core::join::layout::{Layout, end_behind, join_behind, measure};
use tempfile::TempDir;

/// Makes a folder in memory where there is one: a target reads and writes files thousands of times a second.
#[must_use]
pub fn make_folder() -> TempDir {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { TempDir::new_in(shared) } else { TempDir::new() }.expect("a folder")
}

/// Joins blocks of `(n_records, bytes)`, read in bites of `bite` bytes; an error as its text.
pub fn join_blocks(spec: &str, blocks: &[(u64, &[u8])], bite: usize) -> Result<Vec<u8>, String> {
    let mut joiner = joiner(spec).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    for (n_records, block) in blocks {
        let mut bites = BufReader::with_capacity(bite, *block);
        joiner.block(*n_records, &mut bites, &mut out).map_err(|error| error.to_string())?;
    }
    joiner.finish(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}

/// Joins each block by itself, as processes do that have not seen the others; `None`: they cannot be joined so.
#[must_use]
pub fn join_apart(spec: &str, blocks: &[(u64, &[u8])]) -> Option<Vec<u8>> {
    let (mut layout, mut out, mut end) = (Layout::default(), vec![], vec![]);
    for (n_records, block) in blocks {
        let before = layout.before().clone();
        let outline = measure(spec, before.records, *n_records, &mut &**block).ok()??;
        let (begin, length) = (out.len() as u64, layout.add(*n_records, &outline)?);
        join_behind(spec, &before, *n_records, &mut &**block, &mut out).ok()?;
        assert_eq!(out.len() as u64 - begin, length, "{spec}: {before:?}, {}", show(block));
        if outline.foot.is_some() {
            end = end_behind(spec, &before, *n_records, &mut &**block).ok()?;
        }
    }
    out.extend(end);
    Some(out)
}

/// Shows bytes in a message.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
