//! Libraries that are preloaded into tools: where they are, for which tools, and the environment that names them.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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

/// Puts a library into a folder, and returns where it is; None: nothing there can be executed.
pub(super) fn place(folder: &Path, name: &str, library: &[u8]) -> io::Result<Option<PathBuf>> {
    let path = folder.join(name);
    fs_err::File::create(&path)?.write_all(library)?;
    Ok(is_executable(&path)?.then_some(path))
}

/// Whether a file can be mapped as code.
fn is_executable(path: &Path) -> io::Result<bool> {
    let file = fs_err::File::open(path)?;
    // SAFETY: a fresh mapping that nobody uses.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            1,
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd(),
            0,
        );
        if at == libc::MAP_FAILED {
            return Ok(false);
        }
        libc::munmap(at, 1);
    }
    Ok(true)
}

/// Whether the program `exe` is loaded as we are, so that it has the C library that our libraries were linked for.
/// Not so are programs that are linked statically or to another C library, and scripts.
pub(super) fn is_loaded_alike(exe: &Path) -> bool {
    let of = |path: &Path| File::open(path).and_then(|file| loader(&file)).ok().flatten();
    let own = of(Path::new("/proc/self/exe"));
    own.is_some() && own == of(exe)
}

/// The program that loads an executable in the format ELF (64 bits, low bytes first), links resolved.
fn loader(file: &File) -> io::Result<Option<PathBuf>> {
    const PT_INTERP: u64 = 3;
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let (at, size, n) = (number(&head[32..40]), number(&head[54..56]), number(&head[56..58]));
    for part in 0..n {
        let mut header = [0; 56];
        file.read_exact_at(&mut header, at.saturating_add(part * size))?;
        if number(&header[..4]) == PT_INTERP {
            let mut path = vec![0; usize::try_from(number(&header[32..40])).unwrap_or(0).min(4096)];
            file.read_exact_at(&mut path, number(&header[8..16]))?;
            let path = path.strip_suffix(b"\0").unwrap_or(&path);
            return std::fs::canonicalize(OsStr::from_bytes(path)).map(Some);
        }
    }
    Ok(None)
}
