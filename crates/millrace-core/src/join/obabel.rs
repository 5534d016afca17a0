//! Open Babel outputs that count or wrap molecules: MOL, PDB, PDBQT and CML.
//!
//! Open Babel writes one molecule alone without the wrapping that it gives to several, so a block of one molecule is
//! held back until it is known whether the run has another: a joiner keeps one molecule at most.

use super::{JoinError, Joiner};
use std::io::{self, BufRead, Write};

/// Reads a line with its newline into `line`; false at the end.
fn next_line(block: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    Ok(block.read_until(b'\n', line)? > 0)
}

/// MOL: `$$$$` stands between molecules, not behind the last one.
#[derive(Default)]
pub(super) struct Mol {
    written: bool,
}

impl Joiner for Mol {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        if block.fill_buf()?.is_empty() {
            return Ok(());
        }
        if self.written {
            out.write_all(b"$$$$\n")?;
        }
        self.written = true;
        io::copy(block, out)?;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }
}

/// PDB and PDBQT: `MODEL` numbers run through the whole output; one molecule alone has none.
#[derive(Default)]
pub(super) struct Models {
    /// Molecules written or held back.
    n_models: u64,
    /// The first molecule of the run, while it may be the only one.
    held: Vec<u8>,
    /// PDB ends with `END`; PDBQT does not.
    has_end: bool,
    /// Whether an `END` waits for the end of the run.
    ended: bool,
}

impl Models {
    pub(super) fn pdb() -> Self {
        Self { has_end: true, ..Self::default() }
    }

    fn model(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.n_models += 1;
        writeln!(out, "MODEL {:8}", self.n_models)
    }

    fn alone(&mut self, body: &[u8], out: &mut dyn Write) -> io::Result<()> {
        self.model(out)?;
        out.write_all(body)?;
        out.write_all(b"ENDMDL\n")
    }

    /// Takes a block of several molecules, whose first line is `line`.
    fn several(&mut self, mut line: Vec<u8>, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let (mut n_models, mut is_open) = (0, false);
        loop {
            if is_model(&line) {
                n_models += 1;
                if is_open || line != format!("MODEL {n_models:8}\n").as_bytes() {
                    return Err(shape("PDB", "molecules are not numbered in their order"));
                }
                is_open = true;
                self.model(out)?;
            } else if self.has_end && !is_open && line == b"END\n" {
                self.ended = true;
                if next_line(block, &mut line)? {
                    return Err(shape("PDB", "something stands behind END"));
                }
                return Ok(());
            } else if !is_open {
                return Err(shape("PDB", "something stands between two molecules"));
            } else {
                is_open = line != b"ENDMDL\n";
                out.write_all(&line)?;
            }
            if !next_line(block, &mut line)? {
                break;
            }
        }
        if self.has_end || is_open {
            return Err(shape("PDB", "no END at the end of a batch"));
        }
        Ok(())
    }
}

/// Whether a line begins a molecule, or is taken for one that does.
fn is_model(line: &[u8]) -> bool {
    line.starts_with(b"MODEL ")
}

fn shape(format: &'static str, problem: &str) -> JoinError {
    JoinError::Shape { format, problem: problem.to_owned() }
}

impl Joiner for Models {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut line = Vec::new();
        if !next_line(block, &mut line)? {
            return Ok(());
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.alone(&held, out)?;
        }
        if is_model(&line) {
            return self.several(line, block, out);
        }
        let mut body = line;
        block.read_to_end(&mut body)?;
        if self.has_end {
            self.ended = true;
            let Some(rest) = body.strip_suffix(b"END\n") else {
                return Err(shape("PDB", "no END at the end of a molecule"));
            };
            let rest = rest.len();
            body.truncate(rest);
        }
        if body.last().is_some_and(|byte| *byte != b'\n') {
            return Err(shape("PDB", "a molecule ends within a line"));
        }
        if body.split_inclusive(|byte| *byte == b'\n').any(|line| is_model(line) || line == b"ENDMDL\n") {
            return Err(shape("PDB", "a molecule holds a line that frames molecules"));
        }
        if self.n_models == 0 {
            self.held = body;
        } else {
            self.alone(&body, out)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        out.write_all(&self.held)?;
        if self.ended {
            out.write_all(b"END\n")?;
        }
        Ok(())
    }
}

const CML_XML: &[u8] = b"<?xml version=\"1.0\"?>\n";
const CML_OPEN: &[u8] = b"<cml xmlns=\"http://www.xml-cml.org/schema\">\n";
const CML_CLOSE: &[u8] = b"</cml>\n";
const CML_SPACE: &[u8] = b" xmlns=\"http://www.xml-cml.org/schema\"";

/// CML: one header, one footer; one molecule alone has neither, carries the name space and is not indented.
#[derive(Default)]
pub(super) struct Cml {
    opened: bool,
    held: Vec<u8>,
}

impl Cml {
    fn open(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if !self.opened {
            self.opened = true;
            out.write_all(CML_XML)?;
            out.write_all(CML_OPEN)?;
        }
        if !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            Self::alone(&held, out)?;
        }
        Ok(())
    }

    /// Writes a molecule that was alone as one of several.
    fn alone(molecule: &[u8], out: &mut dyn Write) -> Result<(), JoinError> {
        let mut text = molecule;
        let mut is_first = true;
        let mut line = Vec::new();
        while next_line(&mut text, &mut line)? {
            // Text with a line break in it is not indented by Open Babel; what it looks like is not known well enough.
            if !line.trim_ascii_start().starts_with(b"<") || !line.ends_with(b">\n") {
                return Err(shape(
                    "CML",
                    "a text with a line break in it stands in a molecule that is a batch of its own",
                ));
            }
            out.write_all(b" ")?;
            match memchr::memmem::find(&line, CML_SPACE) {
                Some(at) if is_first => {
                    out.write_all(&line[..at])?;
                    out.write_all(&line[at + CML_SPACE.len()..])?;
                }
                None if is_first => return Err(shape("CML", "a molecule without its name space")),
                _ => out.write_all(&line)?,
            }
            is_first = false;
        }
        Ok(())
    }
}

impl Joiner for Cml {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut line = Vec::new();
        if !next_line(block, &mut line)? {
            return Ok(());
        }
        if line != CML_XML {
            return Err(shape("CML", "no XML declaration at the beginning"));
        }
        next_line(block, &mut line)?;
        if line != CML_OPEN {
            let mut molecule = std::mem::take(&mut line);
            block.read_to_end(&mut molecule)?;
            if !molecule.starts_with(b"<molecule") {
                return Err(shape("CML", "neither <cml> nor <molecule> at the beginning"));
            }
            if self.opened || !self.held.is_empty() {
                self.open(out)?;
                return Self::alone(&molecule, out);
            }
            self.held = molecule;
            return Ok(());
        }
        self.open(out)?;
        let mut closed = false;
        while next_line(block, &mut line)? {
            if closed {
                return Err(shape("CML", "something stands behind </cml>"));
            }
            closed = line == CML_CLOSE;
            if !closed {
                out.write_all(&line)?;
            }
        }
        if !closed {
            return Err(shape("CML", "no </cml> at the end"));
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if self.opened {
            out.write_all(CML_CLOSE)?;
        } else if !self.held.is_empty() {
            out.write_all(CML_XML)?;
            out.write_all(&self.held)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Joiner, Models};

    fn is_joined(blocks: &[&str]) -> bool {
        let mut joiner = Models::pdb();
        blocks.iter().all(|block| joiner.block(1, &mut block.as_bytes(), &mut Vec::new()).is_ok())
    }

    #[test]
    fn lines_that_frame_molecules_within_one_are_refused() {
        let two = "MODEL        1\nA\nENDMDL\nMODEL        2\nB\nENDMDL\nEND\n";
        assert!(is_joined(&["A\nEND\n", "A\nEND\n", two]));
        for block in ["A\nMODEL x\nEND\n", "A\nENDMDL\nEND\n", "A END\n"] {
            assert!(!is_joined(&[block]), "{block}");
        }
        for (old, new) in [
            ("A\n", "A\nMODEL        2\n"),
            ("       2", "       3"),
            ("B\nENDMDL\n", "B\n"),
            ("MODEL        2", "C\nMODEL        2"),
        ] {
            assert!(!is_joined(&[&two.replace(old, new)]), "{new}");
        }
    }
}
