//! What a finished task becomes: blocks in the journal, bytes of the output.
//!
//! Here slots, journal and joins meet: [`JournalSink`] takes what a tool wrote, looks whether it can count, and makes it
//! durable; [`StreamWriter`] joins committed blocks into the output; [`PartWriter`] writes them at given places of a
//! file that several nodes write. Nothing here knows Python.

mod aligned;
mod journals;
mod parts;
mod pieces;
mod sink;
mod stream;
#[cfg(test)]
mod tests;
mod untouched;

pub use journals::{Journals, SharedJournal, StoredBlock};
pub use parts::{Gathered, PartWriter};
pub use pieces::{OutputLayout, OutputPiece};
pub use sink::{JournalSink, Patch, Purpose, Stream};
pub use stream::{Excerpt, StreamWriter, extract, joined};

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use regex::bytes::{Regex, RegexBuilder};

/// Bytes of a block that are read at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Waits until everything written on the filesystem of `path` is on disk: any number of files, once for all.
///
/// # Errors
/// If `path` cannot be opened, or the disk fails.
pub fn sync_filesystem(path: &Path) -> io::Result<()> {
    let folder = fs_err::File::open(path)?;
    // SAFETY: a live descriptor.
    if unsafe { libc::syncfs(folder.as_raw_fd()) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An expression as adapters write them: `^` and `$` are ends of lines.
fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).multi_line(true).build()
}

fn patterns(texts: &[String]) -> Result<Vec<Regex>, regex::Error> {
    texts.iter().map(|text| pattern(text)).collect()
}
