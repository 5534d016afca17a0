//! Records that end after one byte: lines, and names ended by NUL.

use memchr::memchr;

use super::scan::{Fault, Scanner, Step};

/// Ends a record after each `delimiter`; what follows the last one is a record of its own.
pub(crate) struct Delimited {
    pub(crate) delimiter: u8,
}

impl Scanner for Delimited {
    fn scan(&mut self, data: &[u8], eof: bool) -> Result<Step, Fault> {
        let found = memchr(self.delimiter, data);
        let len = found.map_or(data.len(), |at| at + 1);
        Ok(Step { ended: found.is_some() || eof, ..Step::more(len, len as u64) })
    }
}
