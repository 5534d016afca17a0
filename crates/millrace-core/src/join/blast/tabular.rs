//! `-outfmt 6`, `10` (rows alone) and `7` (rows with comments).
//!
//! Rows of one query follow those of the query before. A record without a name is called `Query_N`, N being its place
//! in the whole input, so these numbers run on.

use std::io::{BufRead, Write};

use memchr::memmem;

use super::Options;
use super::fields::{query_number, write_query};
use crate::join::layout::{Before, Outline, Starts};
use crate::join::lines::{Lines, buffered, parse_count, shape};
use crate::join::{JoinError, Joiner};

const FORMAT: &str = "BLAST tabular";

/// The leading columns that hold the query's name.
struct Columns {
    count: usize,
    delim: Vec<u8>,
}

impl Columns {
    /// The number N if the first of these columns is BLAST's name for one of the `n_records` records of the batch.
    fn local_number(&self, row: &[u8], n_records: u64) -> Option<u64> {
        if self.count == 0 || !row.starts_with(b"Query_") {
            return None;
        }
        query_number(self.first(row)).filter(|number| (1..=n_records).contains(number))
    }

    fn first<'r>(&self, row: &'r [u8]) -> &'r [u8] {
        let row = row.strip_suffix(b"\n").unwrap_or(row);
        &row[..memmem::find(row, &self.delim).unwrap_or(row.len())]
    }

    /// Writes the row with `shifted` in all name columns, each of which must say what the first one says.
    fn write_shifted(&self, row: &[u8], shifted: u64, out: &mut impl Write) -> Result<(), JoinError> {
        let name = self.first(row).to_vec();
        let mut rest = row;
        for column in 0..self.count {
            if column > 0 {
                rest = rest
                    .strip_prefix(self.delim.as_slice())
                    .ok_or_else(|| shape(FORMAT, "a row has too few columns"))?;
                out.write_all(&self.delim)?;
            }
            rest = rest
                .strip_prefix(name.as_slice())
                .filter(|rest| rest.starts_with(&self.delim) || matches!(*rest, b"\n" | b""))
                .ok_or_else(|| shape(FORMAT, "the name columns of a row differ for a record without a name"))?;
            write_query(out, shifted)?;
        }
        out.write_all(rest)?;
        Ok(())
    }
}

/// `-outfmt 6` and `10`, where only the input can tell a record called `Query_2` from the second one without a name.
pub(super) struct Tabular {
    columns: Columns,
    unnamed: bool,
    records_before: u64,
    outline: Outline,
}

impl Tabular {
    pub(super) fn new(options: &Options) -> Self {
        let columns = Columns { count: options.columns, delim: options.delim.clone() };
        Self { columns, unnamed: options.unnamed, records_before: 0, outline: Outline::default() }
    }
}

impl Joiner for Tabular {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        self.outline = Outline::default();
        while let Some(row) = lines.next()? {
            if !row.ends_with(b"\n") {
                return Err(shape(FORMAT, "a batch ends within a row"));
            }
            match self.columns.local_number(row, n_records) {
                None => out.write_all(row)?,
                // The numbers of the first records are right as they are.
                Some(local) if self.records_before == 0 => {
                    match self.unnamed {
                        true => self.outline.starts.keep_width(0, local),
                        false => self.outline.starts = Starts::only(0),
                    }
                    out.write_all(row)?;
                }
                Some(local) if self.unnamed => {
                    self.outline.starts.keep_width(self.records_before, local);
                    self.columns.write_shifted(row, self.records_before + local, &mut out)?;
                }
                Some(local) => {
                    let problem = format!(
                        "a row of record {} is named Query_{local}, and it cannot be told whether that is the record's \
                         own name or BLAST's for a record without one; give every record a name of its own",
                        self.records_before + local
                    );
                    return Err(shape(FORMAT, problem));
                }
            }
        }
        self.records_before += n_records;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }

    fn resume(&mut self, before: &Before) {
        self.records_before = before.records;
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

const QUERY: &[u8] = b"# Query: ";

/// `-outfmt 7`: the last line counts the searches of the whole run (in PSI-BLAST every round of every query).
pub(super) struct Comments {
    columns: Columns,
    records_before: u64,
    n_searches: Option<u64>,
    outline: Outline,
}

impl Comments {
    pub(super) fn new(options: &Options) -> Self {
        let columns = Columns { count: options.columns, delim: options.delim.clone() };
        Self { columns, records_before: 0, n_searches: None, outline: Outline::default() }
    }
}

impl Joiner for Comments {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        self.outline = Outline::default();
        let mut total = Vec::new();
        let mut unnamed = false;
        let mut n_sections = 0;
        while let Some(row) = lines.next()? {
            // Not the last line after all.
            out.write_all(&total)?;
            total.clear();
            if row.starts_with(b"# ") {
                if let Some(title) = row.strip_prefix(QUERY) {
                    unnamed = title.trim_ascii().is_empty();
                    n_sections += 1;
                } else if searches(row).is_some() {
                    total.extend_from_slice(row);
                    continue;
                }
                out.write_all(row)?;
                continue;
            }
            match self.columns.local_number(row, n_records).filter(|_| unnamed) {
                Some(local) => {
                    self.outline.starts.keep_width(self.records_before, local);
                    self.columns.write_shifted(row, self.records_before + local, &mut out)?;
                }
                None => out.write_all(row)?,
            }
        }
        let n_searches =
            searches(&total).ok_or_else(|| shape(FORMAT, "a batch does not end with '# BLAST processed'"))?;
        if n_searches != n_sections || n_searches < n_records {
            let problem = format!("a batch of {n_records} records has {n_sections} sections and counts {n_searches}");
            return Err(shape(FORMAT, problem));
        }
        self.n_searches = Some(self.n_searches.unwrap_or(0) + n_searches);
        (self.outline.foot, self.outline.counts) = (Some(0), vec![n_searches]);
        self.records_before += n_records;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(n_searches) = self.n_searches {
            writeln!(out, "# BLAST processed {n_searches} queries")?;
        }
        Ok(())
    }

    fn resume(&mut self, before: &Before) {
        (self.records_before, self.n_searches) = (before.records, before.counts.first().copied());
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

/// The count in the last line of a block.
fn searches(line: &[u8]) -> Option<u64> {
    parse_count(line.strip_prefix(b"# BLAST processed ")?.strip_suffix(b" queries\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(second: &str) -> Result<String, JoinError> {
        let mut out = Vec::new();
        let mut joiner = Tabular::new(&Options { columns: 2, delim: b"\t".to_vec(), unnamed: true, parsed: false });
        for block in ["Query_1\tQuery_1\ts\n", second] {
            joiner.block(1, &mut block.as_bytes(), &mut out)?;
        }
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn names_that_only_begin_alike_are_refused() {
        assert_eq!(joined("Query_1\tQuery_1\n").expect("joined"), "Query_1\tQuery_1\ts\nQuery_2\tQuery_2\n");
        assert!(
            joined("Query_1\tQuery_12\ts\n").is_err_and(|error| error.to_string().contains("columns of a row differ"))
        );
    }
}
