//! What the fuzz targets share.

use std::io::BufReader;
use std::path::Path;

use millrace_core::join::joiner;
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

/// Shows bytes in a message.
#[must_use]
pub fn show(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}
