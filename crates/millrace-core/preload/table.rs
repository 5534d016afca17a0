// The table of calls: the preloaded library writes it, a slot reads it. A file of zeros is an empty table.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// Most files of a table.
pub const N_FILES: usize = 4096;

/// Places of the index, of which at most half are taken.
pub const N_PLACES: usize = 2 * N_FILES;

/// Most bytes of a path; of a longer one the end stays.
pub const PATH_BYTES: usize = 312;

/// Classes of sizes: up to 64 bytes, 1 KiB, 16 KiB, 256 KiB, 4 MiB, and more.
pub const N_SIZES: usize = 6;

/// All of it.
#[repr(C)]
pub struct Table {
    /// Processes that have the library.
    pub n_processes: AtomicU64,
    /// Of these, those whose standard streams (stdio) are not counted.
    pub n_streamless: AtomicU64,
    /// Files for which there was no room.
    pub n_lost: AtomicU64,
    /// Files so far; more than `N_FILES` were lost.
    pub n_files: AtomicU64,
    /// For each hash the number of a file, from 1; 0: free; `u32::MAX`: somebody is about to take it.
    pub index: [AtomicU32; N_PLACES],
    pub files: [Entry; N_FILES],
}

/// One file.
#[repr(C)]
pub struct Entry {
    pub length: AtomicU64,
    /// Written once, before its number is in the index.
    pub path: UnsafeCell<[u8; PATH_BYTES]>,
    pub opens: AtomicU64,
    pub open_ns: AtomicU64,
    pub seeks: AtomicU64,
    pub mapped_bytes: AtomicU64,
    pub read: Calls,
    pub written: Calls,
}

/// Calls that read, or that write.
#[repr(C)]
pub struct Calls {
    pub n: AtomicU64,
    pub bytes: AtomicU64,
    pub ns: AtomicU64,
    /// Those that began elsewhere than where the one before had ended.
    pub jumps: AtomicU64,
    pub sizes: [AtomicU64; N_SIZES],
}
