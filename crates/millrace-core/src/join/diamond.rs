//! DIAMOND outputs with a header (pairwise, tabular with `--header`, SAM) and XML.
//!
//! With `--unal 0` alone: a run without any hit reports none of its queries, else it reports them all.

use super::{JoinError, Joiner};
use std::io::{self, BufRead, Write};

/// What is at the end of a command line to which the thread option was added.
const ADDED: &[u8] = b" -p 1\n";

/// Where a header ends.
enum Kind {
    /// After this many lines.
    Lines(usize),
    /// Before the first line that has none of these beginnings; there is at least one that has.
    Beginnings(&'static [&'static [u8]]),
}

/// The header of the first block, then what follows the header of every block.
pub(super) struct Head {
    kind: Kind,
    /// Whether the command line in the header has the thread option that the user did not type.
    strip: bool,
    header: Option<Vec<u8>>,
}

impl Head {
    /// Makes the joiner for `pairwise`, `simple`, `verbose` or `sam`, each with `-p` behind it if that was added.
    pub(super) fn new(parameter: &str) -> Option<Self> {
        let (name, strip) = parameter.strip_suffix("-p").map_or((parameter, false), |name| (name, true));
        let kind = match name {
            "pairwise" => Kind::Lines(3),
            "simple" => Kind::Lines(1),
            "verbose" => Kind::Lines(3),
            "sam" => Kind::Beginnings(&[b"@HD\t", b"@PG\t", b"@mm\t", b"@CO\t"]),
            _ => return None,
        };
        Some(Self { kind, strip, header: None })
    }

    /// Reads the header of a block; what was read beyond it is left in `rest`.
    fn read(&self, block: &mut dyn BufRead, rest: &mut Vec<u8>) -> Result<Vec<u8>, JoinError> {
        let mut header = Vec::new();
        let mut n_lines = 0;
        loop {
            if matches!(self.kind, Kind::Lines(n) if n == n_lines) {
                return Ok(header);
            }
            rest.clear();
            block.read_until(b'\n', rest)?;
            if let Kind::Beginnings(known) = self.kind
                && n_lines > 0
                && !known.iter().any(|beginning| rest.starts_with(beginning))
            {
                return Ok(header);
            }
            if !rest.ends_with(b"\n") {
                return Err(shape("a block without its header"));
            }
            let names_command = rest.starts_with(b"@PG\t") || rest.starts_with(b"# Invocation:");
            if self.strip && names_command {
                let Some(before) = rest.strip_suffix(ADDED) else {
                    return Err(shape("the command line in the header does not end with the option that was added"));
                };
                header.extend_from_slice(before);
                header.push(b'\n');
            } else {
                header.extend_from_slice(rest);
            }
            rest.clear();
            n_lines += 1;
        }
    }
}

fn shape(problem: &str) -> JoinError {
    JoinError::Shape { format: "DIAMOND", problem: problem.to_owned() }
}

impl Joiner for Head {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut rest = Vec::new();
        let header = self.read(block, &mut rest)?;
        match &self.header {
            None => {
                out.write_all(&header)?;
                self.header = Some(header);
            }
            Some(first) if *first != header => return Err(shape("two batches with different headers")),
            Some(_) => {}
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
