//! Where the records of a batch end, for a program that gets them one by one.

use std::fmt::Debug;
use std::io;
use std::path::Path;

/// Says where the records of a batch end.
pub trait Lengths: Debug + Send + Sync {
    /// Bytes of each record in the file.
    ///
    /// # Errors
    /// If it cannot be read, or holds what are no records.
    fn of(&self, batch: &Path) -> io::Result<Vec<u64>>;
}
