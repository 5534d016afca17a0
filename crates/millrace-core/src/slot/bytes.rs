//! Bytes of two files, compared without either being held in memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek};

/// Whether two files hold the same bytes; both are read from the beginning.
pub(super) fn is_same(one: &mut File, other: &mut File) -> io::Result<bool> {
    if one.metadata()?.len() != other.metadata()?.len() {
        return Ok(false);
    }
    one.rewind()?;
    other.rewind()?;
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let n = left.len().min(right.len());
        if left[..n] != right[..n] {
            return Ok(false);
        }
        if n == 0 {
            return Ok(left.is_empty() && right.is_empty());
        }
        one.consume(n);
        other.consume(n);
    }
}
