//! Cuts inputs into records without ever changing a byte.
//!
//! Bytes flow source -> buffer -> scan -> destination file, so a record may be larger than memory.
//! `source` opens and decompresses, a scanner per format family finds where records end, and
//! [`Reader`] counts, checks and writes. Nothing here knows of processes, journals or Python.

mod delimited;
mod digest;
mod error;
mod fasta;
mod fastq;
mod format;
mod lengths;
mod lines;
mod packing;
mod reader;
mod rows;
mod scan;
mod sniff;
mod source;

#[cfg(test)]
mod tests;

pub use digest::RecordDigests;
pub use error::Error;
pub use format::{Cutter, Format};
pub use lengths::lengths;
pub use packing::{Form, Packing};
pub use reader::{Batch, Interrupt, Limits, Reader};
pub use scan::Content;
pub use sniff::sniff;
pub use source::compression;
