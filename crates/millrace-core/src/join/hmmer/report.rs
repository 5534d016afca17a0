//! The report (`-o` or standard output): banner once, query after query, `[ok]` once.

use std::io::{BufRead, BufWriter, Write};

use super::added::Added;
use super::lines::{CHUNK, Common, next, shape};
use crate::join::layout::{Before, Outline, digest};
use crate::join::{JoinError, Joiner};

const FORMAT: &str = "HMMER report";

/// Begins the line below the title and the one that closes the banner.
const RULE: &[u8] = b"# - - - - - - - - - -";

/// The most lines and bytes that a banner may have: one a line for each option, and paths can be long.
const MOST_LINES: usize = 200;
const MOST_BYTES: usize = 1 << 20;

/// The programs that pass over a record without residues as if it were not there.
const SKIP_EMPTY: [&[u8]; 2] = [b"# phmmer ", b"# jackhmmer "];

/// Banners depend on program and options alone, so all batches must have the same one.
pub(super) struct Report {
    added: Added,
    banner: Common,
    skips_empty: bool,
    any: bool,
    /// Another joiner has written the banner.
    headed: bool,
    outline: Outline,
}

impl Report {
    pub(super) fn new(added: Added) -> Self {
        let (banner, outline) = Default::default();
        Self { added, banner, skips_empty: false, any: false, headed: false, outline }
    }

    /// Reads the banner and writes it if it is the first.
    fn banner(&mut self, block: &mut dyn BufRead, out: &mut impl Write) -> Result<(), JoinError> {
        let mut banner = read_banner(block)?;
        self.skips_empty = SKIP_EMPTY.iter().any(|program| banner[0].starts_with(program));
        self.added.clean_banner(&mut banner, FORMAT)?;
        let bytes = banner.concat();
        self.outline = Outline { head: Some(digest(&bytes)), lead: bytes.len() as i64, ..Outline::default() };
        if self.banner.check(banner, FORMAT, "banner")? && !self.headed {
            out.write_all(&bytes)?;
        }
        Ok(())
    }

    fn check_count(&self, n_queries: u64, n_records: u64) -> Result<(), JoinError> {
        if n_queries == n_records || (self.skips_empty && n_queries < n_records) {
            return Ok(());
        }
        let problem = format!("a batch of {n_records} records has {n_queries} queries");
        Err(shape(FORMAT, problem))
    }
}

/// The lines up to the second rule and the empty line below it.
fn read_banner(block: &mut dyn BufRead) -> Result<Vec<Vec<u8>>, JoinError> {
    let mut banner: Vec<Vec<u8>> = Vec::new();
    let (mut n_rules, mut n_bytes) = (0, 0);
    let mut line = Vec::new();
    while banner.len() < MOST_LINES && n_bytes < MOST_BYTES && next(block, &mut line)? {
        n_rules += usize::from(line.starts_with(RULE));
        n_bytes += line.len();
        let ends = line == b"\n";
        if line[0] != b'#' && !ends {
            break;
        }
        banner.push(line.clone());
        if ends {
            if n_rules == 2 {
                return Ok(banner);
            }
            break;
        }
    }
    Err(shape(FORMAT, "a batch does not begin with HMMER's banner"))
}

impl Joiner for Report {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = BufWriter::with_capacity(CHUNK, out);
        self.banner(block, &mut out)?;
        let (mut last, mut line) = (Vec::new(), Vec::new());
        let mut n_queries = 0;
        while next(block, &mut line)? {
            out.write_all(&last)?;
            n_queries += u64::from(line == b"//\n");
            std::mem::swap(&mut last, &mut line);
        }
        if last != b"[ok]\n" {
            return Err(shape(FORMAT, "a batch does not end with '[ok]'"));
        }
        self.check_count(n_queries, n_records)?;
        self.any = true;
        self.outline.foot = Some(0);
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if self.any {
            out.write_all(b"[ok]\n")?;
        }
        Ok(())
    }

    fn set_form(&mut self, form: u32) {
        self.banner.form = form;
    }

    fn resume(&mut self, before: &Before) {
        self.headed = before.headed;
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}
