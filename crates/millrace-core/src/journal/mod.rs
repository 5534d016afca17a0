//! The journal: an append-only, checksummed file of blocks that makes results durable.
//!
//! A task's blocks are followed by one commit frame; a task is done when that frame is whole. The file
//! is enough to resume, verify and gather, whatever died. Layout (all integers little endian):
//!
//! ```text
//! file    = header frame*
//! header  = "MRJOURNL" version:u32 run_id:[u8;16] crc32c:u32
//! frame   = "MRF1" kind:u8 flags:u8 stream:u16 first:u64 last:u64 fragment:u32 attempt:u32
//!           length:u64 name_length:u16 zero:u16 head_crc32c:u32 name payload payload_crc32c:u32
//! block   = kind 1, payload = what the tool wrote to one stream; name = that of a file in a folder, or what joiners
//!           must know of the payload ([`crate::join::layout::Outline`])
//! commit  = kind 2, flags bit 0 = quarantined, payload = inputs:u16 (bytes:u64 crc32c:u32)*
//!           blocks:u32 (frame_offset:u64)*
//! synced  = kind 3, payload = offset:u64 up to which the file was known to be on disk, and the writer was sure of it:
//!           inputs, databases and program were still those of the plan when all before it was written
//! ```
//!
//! Nothing here knows of processes, formats or Python.

mod append;
mod frame;
mod read;
mod scan;
#[cfg(test)]
mod tests;

pub use append::{Journal, Source, TaskHead, forget_unsynced};
pub use frame::{InputDigest, VERSION};
pub use read::BlockReader;
pub use scan::{BlockRef, Damage, Scan, TaskRef, scan};

use std::io;
use std::path::PathBuf;

/// What a journal can fail with.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Reading or writing failed; the message names the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is not a journal.
    #[error("{0}: not a Millrace journal")]
    NotAJournal(PathBuf),
    /// The file was written by a release that uses another layout.
    #[error("{path}: journal version {found}, this release reads version {VERSION}")]
    Version {
        /// The journal.
        path: PathBuf,
        /// The version in its header.
        found: u32,
    },
    /// The journal belongs to another run.
    #[error("{0}: belongs to another run")]
    OtherRun(PathBuf),
    /// Stored bytes are not what was committed.
    #[error("{path}: byte {offset}: {problem}")]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// Where the block begins.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
}

impl JournalError {
    /// This as an error of input and output: the operating system's own, or one with the same words.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            Self::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}
