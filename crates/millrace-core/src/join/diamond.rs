//! XML of DIAMOND, with `--unal 0` alone: a run without any hit reports none of its queries, else it reports them all.

use super::lines::parse_count;
use super::{JoinError, Joiner};
use std::io::{BufRead, Write};

fn shape(problem: &str) -> JoinError {
    JoinError::Shape { format: "DIAMOND", problem: problem.to_owned() }
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
    let Some(number) = parse_count(text) else {
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

#[cfg(test)]
mod tests {
    use super::{Joiner, Xml};

    #[test]
    fn a_number_that_diamond_does_not_write_is_refused() {
        for number in ["18446744073709551615", "+1", "01", "0", ""] {
            let block = format!(
                "<BlastOutput_iterations>\n  <Iteration_iter-num>{number}</Iteration_iter-num>\n</BlastOutput_iterations>\n</BlastOutput>"
            );
            assert!(Xml::default().block(1, &mut block.as_bytes(), &mut Vec::new()).is_err(), "{number}");
        }
    }
}
