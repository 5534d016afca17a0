//! The environment of a tool into which a library is preloaded.

use std::ffi::CString;
use std::io;

/// The variable with the libraries.
const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// `environ` with `library` before those that are there, and `told`, `NAME=value`, for it.
pub(super) fn environ(environ: &[CString], library: &[u8], told: Vec<u8>) -> io::Result<Vec<CString>> {
    let (mut before, mut changed) = (vec![], vec![]);
    for entry in environ {
        match entry.to_bytes().strip_prefix(PRELOAD) {
            Some(text) => before = text.to_vec(),
            None => changed.push(entry.clone()),
        }
    }
    let mut preload = [PRELOAD, library].concat();
    if !before.is_empty() {
        preload.push(b':');
        preload.extend(before);
    }
    changed.extend([CString::new(preload)?, CString::new(told)?]);
    Ok(changed)
}
