//! Where the records of a batch end that was cut before.

use std::path::Path;

use super::error::Error;
use super::format::Cutter;
use super::reader::Reader;

/// Bytes of each record in `batch`, in order.
///
/// # Errors
/// [`Error::Usage`] for a format with a header, which is no record's; else as [`Reader::cut`].
///
/// # Examples
/// ```
/// use millrace_core::record::{Cutter, Format, lengths};
/// # let dir = tempfile::tempdir().unwrap();
/// # let batch = dir.path().join("batch.fa");
/// std::fs::write(&batch, ">a\nACGT\n>b\nAA\n").unwrap();
/// assert_eq!(lengths(&batch, Cutter::new(Format::Fasta, None, None)?)?, [8, 6]);
/// # Ok::<(), millrace_core::record::Error>(())
/// ```
pub fn lengths(batch: &Path, cutter: Cutter) -> Result<Vec<u64>, Error> {
    if cutter.header().is_some() {
        return Err(Error::Usage("a record of a format with a header does not stand alone".to_owned()));
    }
    let mut reader = Reader::new(vec![batch.to_owned()], cutter)?;
    let mut found = Vec::new();
    while let Some(record) = reader.skip(1)? {
        found.push(record.bytes);
    }
    Ok(found)
}
