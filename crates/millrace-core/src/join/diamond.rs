//! DIAMOND outputs with a header (pairwise, tabular with `--header`, SAM) and XML.
//!
//! With `--unal 0` alone: a run without any hit reports none of its queries, else it reports them all.

use super::frame::{self, Edge};
use super::lines::{Common, Lines};
use super::{JoinError, Joiner};
use regex::bytes::Regex;
use std::io::{self, BufRead, Write};

/// What was added to the end of a command line, before the number of threads and the end of the line.
const ADDED: &[u8] = b" -p ";

/// A command line without the thread option that was added to its end, and without the end of the line.
fn without_threads(line: &[u8]) -> Option<&[u8]> {
    let line = line.strip_suffix(b"\n")?;
    let number = line.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    line[..line.len() - number].strip_suffix(ADDED).filter(|_| number > 0)
}

/// The header of the first block, then what follows the header of every block.
pub(super) struct Head {
    edge: Edge,
    /// Whether the command line in the header has the thread option that the user did not type.
    strip: bool,
    header: Common,
}

impl Head {
    /// Makes the joiner for `pairwise`, `simple`, `verbose` or `sam`, each with `-p` behind it if that was added.
    pub(super) fn new(parameter: &str) -> Option<Self> {
        let (name, strip) = parameter.strip_suffix("-p").map_or((parameter, false), |name| (name, true));
        let edge = match name {
            "pairwise" => Edge::Lines(3),
            "simple" => Edge::Lines(1),
            "verbose" => Edge::Lines(3),
            "sam" => Edge::Matching(Regex::new("^@(HD|PG|mm|CO)\t").ok()?),
            _ => return None,
        };
        Some(Self { edge, strip, header: Common::default() })
    }

    /// The header of a block as the user's own command writes it.
    fn as_typed(&self, header: &[u8]) -> Result<Vec<u8>, JoinError> {
        let mut typed = Vec::with_capacity(header.len());
        for line in header.split_inclusive(|byte| *byte == b'\n') {
            let names_command = line.starts_with(b"@PG\t") || line.starts_with(b"# Invocation:");
            if !self.strip || !names_command {
                typed.extend_from_slice(line);
                continue;
            }
            let Some(before) = without_threads(line) else {
                return Err(shape("the command line in the header does not end with the option that was added"));
            };
            typed.extend_from_slice(before);
            typed.push(b'\n');
        }
        Ok(typed)
    }
}

fn shape(problem: &str) -> JoinError {
    JoinError::Shape { format: "DIAMOND", problem: problem.to_owned() }
}

impl Joiner for Head {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let (header, rest) = frame::header(&self.edge, &mut Lines::new(block), "DIAMOND")?;
        if !header.ends_with(b"\n") {
            return Err(shape("a block without its header"));
        }
        let is_first = self.header.get().is_none();
        self.header.check(self.as_typed(&header)?, "DIAMOND", "header")?;
        if is_first {
            out.write_all(self.header.get().unwrap_or_default())?;
        }
        out.write_all(&rest)?;
        io::copy(block, out)?;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }
}

const OPEN: &[u8] = b"<BlastOutput_iterations>\n";
const CLOSE: &[u8] = b"</BlastOutput_iterations>\n";
const END: &[u8] = b"</BlastOutput>";
const NUMBER: (&[u8], &[u8]) = (b"  <Iteration_iter-num>", b"</Iteration_iter-num>\n");
const QUERY: (&[u8], &[u8]) = (b"  <Iteration_query-ID>Query_", b"</Iteration_query-ID>\n");

/// XML: one head, one foot; numbers of queries, which leave out those without hits, run on.
#[derive(Default)]
pub(super) struct Xml {
    n_records: u64,
    is_open: bool,
    has_block: bool,
}

/// Writes a line with its number moved on by `by`; false if it is no such line.
fn shifted(line: &[u8], around: (&[u8], &[u8]), by: u64, out: &mut dyn Write) -> Result<bool, JoinError> {
    let Some(text) = line.strip_prefix(around.0).and_then(|rest| rest.strip_suffix(around.1)) else {
        return Ok(false);
    };
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(number) = number else {
        return Err(shape("a query without its number"));
    };
    out.write_all(around.0)?;
    write!(out, "{}", number + by)?;
    out.write_all(around.1)?;
    Ok(true)
}

impl Joiner for Xml {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut line = Vec::new();
        let mut is_head = true;
        loop {
            line.clear();
            if block.read_until(b'\n', &mut line)? == 0 {
                return Err(shape("XML without its end"));
            }
            // A query file without residues gives no head, only the end.
            if line == CLOSE {
                break;
            }
            if is_head {
                is_head = line != OPEN;
                if !self.is_open {
                    out.write_all(&line)?;
                }
            } else if !shifted(&line, NUMBER, self.n_records, out)? && !shifted(&line, QUERY, self.n_records, out)? {
                out.write_all(&line)?;
            }
        }
        line.clear();
        block.read_to_end(&mut line)?;
        if line != END {
            return Err(shape("XML without its end"));
        }
        self.is_open |= !is_head;
        self.has_block = true;
        self.n_records += n_records;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if self.has_block {
            out.write_all(CLOSE)?;
            out.write_all(END)?;
        }
        Ok(())
    }
}
