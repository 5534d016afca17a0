//! `-outfmt 0` to `4`, the report for people: banner once, query after query, closing statistics once.

use std::io::{BufRead, Write};

use crate::join::layout::{Before, Outline, digest};
use crate::join::lines::{Common, Lines, buffered, keep, shape};
use crate::join::{JoinError, Joiner};

const FORMAT: &str = "BLAST report";

/// What the first line after the banner begins with: a query, or in PSI-BLAST the round of the first query.
const BODY: [&[u8]; 4] = [b"Query= ", b"<b>Query=</b> ", b"Results from round ", b"Results from domain search"];

/// What the first line of the closing statistics begins with; two empty lines stand before it.
const FOOTER: &[u8] = b"  Database: ";

/// Banner and statistics depend on program, options and database alone, so all batches must have the same ones.
#[derive(Default)]
pub(super) struct Report {
    banner: Common,
    footer: Common,
    /// Another joiner has written the banner.
    headed: bool,
    outline: Outline,
}

impl Report {
    /// Reads up to the first line that is not banner, and returns that line.
    fn banner(&mut self, lines: &mut Lines<'_>, out: &mut impl Write) -> Result<Vec<u8>, JoinError> {
        let mut banner = Vec::new();
        while let Some(line) = lines.next()? {
            if BODY.iter().any(|start| line.starts_with(start)) {
                let line = line.to_vec();
                (self.outline.head, self.outline.lead) = (Some(digest(&banner)), banner.len() as i64);
                if self.banner.get().is_none() && !self.headed {
                    out.write_all(&banner)?;
                }
                self.banner.check(banner, FORMAT, "banner")?;
                return Ok(line);
            }
            keep(&mut banner, line, FORMAT)?;
        }
        Err(shape(FORMAT, "a batch has no line that begins with 'Query= '"))
    }
}

impl Joiner for Report {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        self.outline = Outline::default();
        let first = self.banner(&mut lines, &mut out)?;
        let mut body = Body::new(first.starts_with(b"Results"));
        body.first(&first, &mut out)?;
        while let Some(line) = lines.next()? {
            body.line(line, &mut out)?;
        }
        body.gap(body.empty_lines, &mut out)?;
        if body.footer.is_empty() {
            return Err(shape(FORMAT, "a batch has no closing statistics"));
        }
        if !body.footer.ends_with(b"\n") {
            return Err(shape(FORMAT, "a batch ends within its closing statistics"));
        }
        if !body.rounds && body.n_queries != n_records {
            let problem = format!("a batch of {n_records} records has {} queries", body.n_queries);
            return Err(shape(FORMAT, problem));
        }
        self.outline.foot = Some(digest(&body.footer));
        self.footer.check(body.footer, FORMAT, "closing statistics")?;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(footer) = self.footer.get() {
            out.write_all(footer)?;
        }
        Ok(())
    }

    fn resume(&mut self, before: &Before) {
        self.headed = before.headed;
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

/// Passes the queries of one block on and holds back what may be the closing statistics.
struct Body {
    /// PSI-BLAST: a query may have several rounds, and the empty lines before the statistics are theirs.
    rounds: bool,
    n_queries: u64,
    empty_lines: usize,
    footer: Vec<u8>,
}

impl Body {
    fn new(rounds: bool) -> Self {
        Self { rounds, n_queries: 0, empty_lines: 0, footer: Vec::new() }
    }

    /// The line that ended the banner, whose empty lines stand before it.
    fn first(&mut self, line: &[u8], out: &mut impl Write) -> Result<(), JoinError> {
        self.n_queries += u64::from(!self.rounds);
        out.write_all(line)?;
        Ok(())
    }

    fn line(&mut self, line: &[u8], out: &mut impl Write) -> Result<(), JoinError> {
        if line == b"\n" {
            self.empty_lines += 1;
            return Ok(());
        }
        let after_gap = self.empty_lines >= 2;
        if after_gap && line.starts_with(FOOTER) {
            self.release(out)?;
            let theirs = if self.rounds { 2 } else { 0 };
            self.gap(self.empty_lines - theirs, out)?;
            self.footer.extend_from_slice(&b"\n\n"[..theirs]);
            self.empty_lines = 0;
            return keep(&mut self.footer, line, FORMAT);
        }
        if after_gap && BODY[..2].iter().any(|start| line.starts_with(start)) {
            self.n_queries += 1;
            self.release(out)?;
        }
        self.gap(self.empty_lines, out)?;
        self.empty_lines = 0;
        if self.footer.is_empty() {
            out.write_all(line)?;
            return Ok(());
        }
        keep(&mut self.footer, line, FORMAT)
    }

    /// Passes `count` empty lines on, to where the lines go.
    fn gap(&mut self, count: usize, out: &mut impl Write) -> Result<(), JoinError> {
        for _ in 0..count {
            if self.footer.is_empty() {
                out.write_all(b"\n")?;
            } else {
                keep(&mut self.footer, b"\n", FORMAT)?;
            }
        }
        Ok(())
    }

    /// What was held back was not the end: writes it.
    fn release(&mut self, out: &mut impl Write) -> Result<(), JoinError> {
        out.write_all(&self.footer)?;
        self.footer.clear();
        Ok(())
    }
}
