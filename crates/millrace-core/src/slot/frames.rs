//! The frames of the record protocol: `NUMBER LENGTH`, a newline, so many bytes, a newline.

use std::fs::File;
use std::io::{self, Read, Write};

/// Bytes moved at once.
pub(super) const PIECE: usize = 64 << 10;

/// Two numbers of 20 digits, a space and a newline.
pub(super) const LONGEST_HEAD: usize = 42;

/// The number and the length in the first line of an answer.
pub(super) fn head(line: &[u8]) -> Option<(u64, u64)> {
    let (number, length) = std::str::from_utf8(line).ok()?.split_once(' ')?;
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(number) || !plain(length) {
        return None;
    }
    Some((number.parse().ok()?, length.parse().ok().filter(|length| *length < u64::MAX)?))
}

/// The frames of a batch, a piece at a time.
pub(super) struct Outgoing<'a> {
    batch: &'a mut File,
    lengths: &'a [u64],
    next: usize,
    pub(super) number: u64,
    /// Bytes of the record that are not in `piece` yet.
    left: u64,
    piece: Vec<u8>,
    written: usize,
}

impl<'a> Outgoing<'a> {
    pub(super) fn new(batch: &'a mut File, lengths: &'a [u64], number: u64) -> Self {
        Self { batch, lengths, next: 0, number, left: 0, piece: Vec::with_capacity(2 * PIECE), written: 0 }
    }

    /// Has something to write ready, if there is any; whether there is.
    pub(super) fn fill(&mut self) -> io::Result<bool> {
        if self.written < self.piece.len() {
            return Ok(true);
        }
        self.piece.clear();
        self.written = 0;
        while self.piece.len() < PIECE {
            if self.left == 0 {
                let Some(&length) = self.lengths.get(self.next) else { break };
                self.next += 1;
                self.number += 1;
                writeln!(self.piece, "{} {length}", self.number)?;
                self.left = length;
            }
            let room = (PIECE as u64).min(self.left);
            let had = self.piece.len();
            (&mut *self.batch).take(room).read_to_end(&mut self.piece)?;
            if self.piece.len() - had != room as usize {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.left -= room;
            if self.left == 0 {
                self.piece.push(b'\n');
            }
        }
        Ok(!self.piece.is_empty())
    }

    pub(super) fn write(&mut self, to: &mut File) -> io::Result<()> {
        match to.write(&self.piece[self.written..]) {
            Ok(n) => self.written += n,
            // What it has answered by then is still to be read, and then the end.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.written = self.piece.len(),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
