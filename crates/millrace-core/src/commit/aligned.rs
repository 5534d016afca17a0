//! Large writes that begin at multiples of their size: what a filesystem far away, in stripes, takes best.

use std::io::{self, Read, Write};

/// Bytes written at a time: each is one call to a filesystem that may be far away. A divisor of the usual stripes.
const UNIT: u64 = 1 << 20;

/// Takes bytes, each time at their place.
pub(super) trait Put {
    /// Writes all of `bytes` at `at`.
    fn put(&mut self, bytes: &[u8], at: u64) -> io::Result<()>;
}

impl<F: FnMut(&[u8], u64) -> io::Result<()>> Put for F {
    fn put(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        self(bytes, at)
    }
}

/// Collects bytes until they reach a multiple of `UNIT` of the file. What is not flushed is not written, and after an error
/// nothing more is to be.
pub(super) struct Aligned<P> {
    put: P,
    buffer: Vec<u8>,
    /// The first so many bytes of the buffer belong at `at` of the file.
    filled: usize,
    at: u64,
}

impl<P: Put> Aligned<P> {
    /// Begins at the start of the file. `expected`: more bytes than these need not be held.
    pub(super) fn new(put: P, expected: u64) -> Self {
        Self { put, buffer: vec![0; size(expected.min(UNIT))], filled: 0, at: 0 }
    }

    pub(super) const fn get_ref(&self) -> &P {
        &self.put
    }

    pub(super) const fn get_mut(&mut self) -> &mut P {
        &mut self.put
    }

    /// Where what comes next belongs.
    pub(super) const fn position(&self) -> u64 {
        self.at + self.filled as u64
    }

    /// What comes next belongs at `at`.
    pub(super) fn go_to(&mut self, at: u64) -> io::Result<()> {
        if at != self.position() {
            self.flush()?;
            self.at = at;
        }
        Ok(())
    }

    /// Takes all that `reader` has.
    pub(super) fn take(&mut self, mut reader: impl Read) -> io::Result<()> {
        loop {
            match reader.read(self.room()) {
                Ok(0) => return Ok(()),
                Ok(n) => self.took(n)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The end of the buffer, as far as the next write may reach. Never empty if something was expected.
    fn room(&mut self) -> &mut [u8] {
        let end = self.end();
        &mut self.buffer[self.filled..end]
    }

    fn end(&self) -> usize {
        self.buffer.len().min(size(UNIT - self.at % UNIT))
    }

    fn took(&mut self, n: usize) -> io::Result<()> {
        self.filled += n;
        if self.filled == self.end() { self.flush() } else { Ok(()) }
    }
}

impl<P: Put> Write for Aligned<P> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.room().write(bytes)?;
        self.took(n)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.put.put(&self.buffer[..self.filled], self.at)?;
            self.at += self.filled as u64;
            self.filled = 0;
        }
        Ok(())
    }
}

/// Takes bytes on, and flushes nothing: who writes through it does not know where a large write ends.
pub(super) struct Unflushed<'a, W>(pub(super) &'a mut W);

impl<W: Write> Write for Unflushed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `bytes`, which are `UNIT` at most, as the length of a buffer.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
