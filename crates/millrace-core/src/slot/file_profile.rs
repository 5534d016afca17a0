//! What the processes of a slot do with each file: counted by a library that is preloaded into them (`preload/calls.rs`).

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::preloaded;
use super::text::Substitutions;

#[allow(clippy::allow_attributes, unreachable_pub)] // shared with a library that is built by itself
#[path = "../../preload/table.rs"]
mod table;

use table::{Calls, N_FILES, Table};

/// Classes of the sizes of calls: up to 64 bytes, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and more.
pub const SIZE_CLASSES: usize = table::N_SIZES;

/// The library that is preloaded; empty where there is none.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/calls.so"));

/// Calls that read a file, or that write it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls.
    pub calls: u64,
    /// Bytes that they moved.
    pub bytes: u64,
    /// Time that they took, in nanoseconds.
    pub nanoseconds: u64,
    /// Those that began elsewhere than where the one before had ended.
    pub jumps: u64,
    /// Those of each class of sizes.
    pub sizes: [u64; SIZE_CLASSES],
}

/// What a task did with one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// The file, by the user's name for it.
    pub path: Vec<u8>,
    /// How often it was opened.
    pub opens: u64,
    /// Time that this took, in nanoseconds.
    pub open_nanoseconds: u64,
    /// How often the place of the next call was moved.
    pub seeks: u64,
    /// Bytes that were mapped: what is read of them is no call.
    pub mapped_bytes: u64,
    /// Calls that read it.
    pub read: CallCounts,
    /// Calls that wrote it.
    pub written: CallCounts,
}

/// What a task did with its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileProfile {
    /// Those that it touched.
    pub files: Vec<FileCounts>,
    /// Processes that were heard of; static programs and those of another user are none.
    pub n_processes: u64,
    /// Of these, those whose standard streams are not counted.
    pub n_streamless: u64,
    /// Files for which there was no room.
    pub n_lost: u64,
}

/// Puts the library into a folder, from which programs must be allowed to be executed.
pub(super) fn place_library(folder: &Path) -> io::Result<PathBuf> {
    if LIBRARY.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "calls can be counted on Linux with glibc, on x86-64 and ARM64",
        ));
    }
    preloaded::place(folder, "calls.so", LIBRARY)?.ok_or_else(|| {
        let words = format!(
            "{}: nothing can be executed there (noexec), so calls cannot be counted; --work-dir names another folder",
            folder.display()
        );
        io::Error::new(io::ErrorKind::PermissionDenied, words)
    })
}

/// The table that the processes of one slot share.
#[derive(Debug)]
pub(super) struct CallTable {
    library: Arc<PathBuf>,
    path: PathBuf,
    table: *mut Table,
}

// SAFETY: a mapping, of which only atomic numbers are changed while others have it.
unsafe impl Send for CallTable {}
// SAFETY: as above.
unsafe impl Sync for CallTable {}

impl CallTable {
    /// Makes the table of the slot `root`, beside it.
    pub(super) fn create(root: &Path, library: Arc<PathBuf>) -> io::Result<Self> {
        let mut path = root.as_os_str().to_owned();
        path.push(".calls");
        let path = PathBuf::from(path);
        let file: File =
            fs_err::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?.into_file();
        file.set_len(size_of::<Table>() as u64)?;
        // SAFETY: a fresh mapping of a file that has this size; zeros are an empty table.
        let table = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), size_of::<Table>(), access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if table == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { library, path, table: table.cast() })
    }

    /// `environ` with the library and the table.
    pub(super) fn add_to(&self, environ: &[CString]) -> io::Result<Vec<CString>> {
        let told = [b"MILLRACE_CALLS=", self.path.as_os_str().as_bytes()].concat();
        preloaded::environ(environ, self.library.as_os_str().as_bytes(), told)
    }

    /// What was counted since the last time. `is_alone`: no process of the slot lives, so the table begins anew.
    pub(super) fn take(&self, pairs: &Substitutions, is_alone: bool) -> FileProfile {
        // SAFETY: mapped as long as we are.
        let table = unsafe { &*self.table };
        let n_files = usize::try_from(table.n_files.load(Ordering::Acquire)).unwrap_or(N_FILES);
        let mut profile = FileProfile {
            files: vec![],
            n_processes: take(&table.n_processes),
            n_streamless: take(&table.n_streamless),
            n_lost: take(&table.n_lost),
        };
        for entry in table.files.iter().take(n_files) {
            let length = usize::try_from(entry.length.load(Ordering::Acquire)).unwrap_or(0).min(table::PATH_BYTES);
            // SAFETY: a path that is written once, before its length.
            let path = unsafe { &(&*entry.path.get())[..length] };
            let counts = FileCounts {
                path: users_path(path, pairs),
                opens: take(&entry.opens),
                open_nanoseconds: take(&entry.open_ns),
                seeks: take(&entry.seeks),
                mapped_bytes: take(&entry.mapped_bytes),
                read: take_calls(&entry.read),
                written: take_calls(&entry.written),
            };
            if counts != (FileCounts { path: counts.path.clone(), ..FileCounts::default() }) {
                profile.files.push(counts);
            }
        }
        if is_alone {
            // SAFETY: nobody else has the table now; zeros are an empty one.
            unsafe {
                let used = std::mem::offset_of!(Table, files) + n_files.min(N_FILES) * size_of::<table::Entry>();
                std::ptr::write_bytes(self.table.cast::<u8>(), 0, used);
            }
        }
        profile
    }
}

impl Drop for CallTable {
    fn drop(&mut self) {
        // SAFETY: our mapping, of this size.
        unsafe { libc::munmap(self.table.cast(), size_of::<Table>()) };
    }
}

fn take(number: &AtomicU64) -> u64 {
    number.swap(0, Ordering::AcqRel)
}

fn take_calls(calls: &Calls) -> CallCounts {
    let mut sizes = [0; SIZE_CLASSES];
    for (size, number) in sizes.iter_mut().zip(&calls.sizes) {
        *size = take(number);
    }
    CallCounts {
        calls: take(&calls.n),
        bytes: take(&calls.bytes),
        nanoseconds: take(&calls.ns),
        jumps: take(&calls.jumps),
        sizes,
    }
}

/// A path as the user knows it.
fn users_path(path: &[u8], pairs: &Substitutions) -> Vec<u8> {
    let found = pairs.iter().find_map(|(private, user)| Some((path.strip_prefix(private.as_slice())?, user)));
    found.map_or_else(|| path.to_vec(), |(rest, user)| [user.as_slice(), rest].concat())
}
