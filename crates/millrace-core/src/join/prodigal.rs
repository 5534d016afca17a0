//! Prodigal with `-p meta`: sequences are numbered through the input, in each batch from 1.
//!
//! A number stands where a sequence begins (`seqnum=9`) and with each gene of it (`ID=9_1`). No other byte changes.
//! Prodigal names a sequence without a name by its number, and reads nothing behind one without residues: both end the
//! join, as the serial output is another one then.

use super::layout::Before;
use super::lines::{Lines, buffered, parse_count, shape};
use super::{JoinError, Joiner};
use std::io::{BufRead, Write};

const FORMAT: &str = "Prodigal";

/// What begins a sequence, up to its number.
const SEQUENCES: [&[u8]; 2] = [b"# Sequence Data: seqnum=", b"DEFINITION  seqnum="];
const GFF_HEAD: &[u8] = b"##gff-version  3\n";

/// What an output is.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// `-f gff`: its first line once, numbers of sequences and genes.
    Gff,
    /// `-f gbk`: numbers of sequences and genes.
    Gbk,
    /// `-f sco` and `-s`: numbers of sequences.
    Sequences,
    /// `-a` and `-d`: numbers of genes, in FASTA headers.
    Genes,
}

pub(super) struct Numbers {
    kind: Kind,
    /// Records before the block.
    before: u64,
}

impl Numbers {
    /// Makes the joiner for `gff`, `gbk`, `sequences` or `genes`.
    pub(super) fn new(parameter: &str) -> Option<Self> {
        let kind = match parameter {
            "gff" => Kind::Gff,
            "gbk" => Kind::Gbk,
            "sequences" => Kind::Sequences,
            "genes" => Kind::Genes,
            _ => return None,
        };
        Some(Self { kind, before: 0 })
    }

    /// Where the number of a gene's sequence begins in a line; `None`: the line has none.
    fn gene(&self, line: &[u8]) -> Option<usize> {
        match self.kind {
            Kind::Sequences => None,
            Kind::Gff => {
                let (tab, _) = line.iter().enumerate().filter(|&(_, &byte)| byte == b'\t').nth(7)?;
                line[tab + 1..].starts_with(b"ID=").then_some(tab + 4)
            }
            Kind::Gbk => {
                let blank = line.iter().position(|&byte| byte != b' ')?;
                let note = b"/note=\"ID=";
                (blank > 0 && line[blank..].starts_with(note)).then_some(blank + note.len())
            }
            Kind::Genes => {
                let mark = b" # ID=";
                let at = line.windows(mark.len()).rposition(|part| part == mark)?;
                line.starts_with(b">").then_some(at + mark.len())
            }
        }
    }
}

/// The number at the beginning of `text`, and how many digits it has.
fn number(text: &[u8]) -> Result<(u64, usize), JoinError> {
    let n_digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    parse_count(&text[..n_digits])
        .map(|found| (found, n_digits))
        .ok_or_else(|| shape(FORMAT, "a sequence or gene without its number"))
}

/// Whether a line that begins a sequence says that it has a name.
fn is_named(line: &[u8]) -> bool {
    let mark = b"seqhdr=\"";
    let name = line.windows(mark.len()).position(|part| part == mark).and_then(|at| line.get(at + mark.len()));
    name.is_some_and(|byte| !byte.is_ascii_whitespace() && *byte != b'"')
}

impl Joiner for Numbers {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let (mut lines, mut out, mut reached) = (Lines::new(block), buffered(out), 0);
        let mut at_start = true;
        while let Some(line) = lines.next()? {
            let is_first = std::mem::take(&mut at_start);
            if !line.ends_with(b"\n") {
                return Err(shape(FORMAT, "a batch ends within a line"));
            }
            if is_first && self.before > 0 && self.kind == Kind::Gff && line == GFF_HEAD {
                continue;
            }
            let sequence = SEQUENCES.iter().find(|begin| line.starts_with(begin)).map(|begin| begin.len());
            if let (Some(at), true) = (sequence, self.kind != Kind::Genes) {
                reached += 1;
                if number(&line[at..])?.0 != reached {
                    return Err(shape(FORMAT, "its sequences are not numbered in their order"));
                }
                if !is_named(line) {
                    return Err(shape(FORMAT, "a sequence has no name, and is named by its number"));
                }
            }
            let gene = if sequence.is_some() { None } else { self.gene(line) };
            match sequence.filter(|_| self.kind != Kind::Genes).or(gene) {
                Some(at) => {
                    let (found, n_digits) = number(&line[at..])?;
                    out.write_all(&line[..at])?;
                    write!(out, "{}", self.before + found)?;
                    out.write_all(&line[at + n_digits..])?;
                }
                None => out.write_all(line)?,
            }
        }
        out.flush()?;
        if self.kind != Kind::Genes && reached != n_records {
            let problem =
                format!("it has read {reached} of {n_records} sequences: nothing behind one without residues");
            return Err(shape(FORMAT, problem));
        }
        self.before += n_records;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }

    fn resume(&mut self, before: &Before) {
        self.before = before.records;
    }
}

#[cfg(test)]
mod tests {
    use super::{JoinError, Joiner, Numbers};

    fn joined(kind: &str, blocks: &[(u64, &str)]) -> Result<String, JoinError> {
        let mut joiner = Numbers::new(kind).expect("a kind");
        let mut out = Vec::new();
        for (n_records, block) in blocks {
            joiner.block(*n_records, &mut block.as_bytes(), &mut out)?;
        }
        joiner.finish(&mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn numbers_of_sequences_and_genes_run_on() {
        let block = "##gff-version  3\n# Sequence Data: seqnum=1;seqlen=9;seqhdr=\"a\"\na\tP\tCDS\t1\t9\t1.0\t+\t0\tID=1_1;x=ID=1_1\n";
        let second = "# Sequence Data: seqnum=2;seqlen=9;seqhdr=\"a\"\na\tP\tCDS\t1\t9\t1.0\t+\t0\tID=2_1;x=ID=1_1\n";
        let expected = format!("{block}{second}");
        assert_eq!(joined("gff", &[(1, block), (1, block)]).expect("joined"), expected);
        let genes =
            joined("genes", &[(9, ">a_1 # 1 # 9 # 1 # ID=9_1;p\nMKV\n"), (1, ">ID=1_2_1 # 1 # 9 # 1 # ID=1_1;p\n")]);
        assert_eq!(genes.expect("joined"), ">a_1 # 1 # 9 # 1 # ID=9_1;p\nMKV\n>ID=1_2_1 # 1 # 9 # 1 # ID=10_1;p\n");
    }

    #[test]
    fn a_number_that_prodigal_does_not_write_is_refused() {
        for number in ["18446744073709551615", "01", "0"] {
            let block = format!(">a_1 # 1 # 9 # 1 # ID={number}_1;p\n");
            assert!(joined("genes", &[(1, ">a_1 # 1 # 9 # 1 # ID=1_1;p\n"), (1, &block)]).is_err(), "{number}");
        }
    }

    #[test]
    fn what_serial_numbers_or_ends_otherwise_is_refused() {
        for (n_records, block) in [
            (1, "# Sequence Data: seqnum=1;seqlen=9;seqhdr=\"\"\n"),
            (1, "# Sequence Data: seqnum=1;seqlen=9;seqhdr=\" a\"\n"),
            (2, "# Sequence Data: seqnum=1;seqlen=9;seqhdr=\"a\"\n"),
            (1, "# Sequence Data: seqnum=2;seqlen=9;seqhdr=\"a\"\n"),
            (1, "# Sequence Data: seqnum=1;seqlen=9;seqhdr=\"a\"\n# Model"),
        ] {
            assert!(joined("sequences", &[(n_records, block)]).is_err(), "{block}");
        }
    }
}
