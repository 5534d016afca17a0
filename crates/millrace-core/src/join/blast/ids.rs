//! `-outfmt 8`, `11` (ASN.1 text) and `12` (JSON): one value after the other, with `Query_N` as local sequence ids.
//!
//! ASN.1 text doubles every quotation mark inside of a string and JSON escapes it, so a line that is a local id is
//! never a part of a title. An archive (`11`) is written per pass over the database and tells of all its queries; its
//! batches must therefore be whole passes, which is the planner's business. Its messages may tell a line of the input, which is
//! that of the batch: only the first block may have such a message.

use std::io::{BufRead, Write};

use memchr::memmem;

use super::Options;
use crate::join::layout::{Before, Outline};
use crate::join::lines::{Lines, buffered, parse_count, shape};
use crate::join::{JoinError, Joiner};

/// How one format writes ids, lines without their indentation.
pub(super) struct Dialect {
    format: &'static str,
    /// Line before the id of a query in the list of queries; empty if there is no such list.
    query: &'static [u8],
    /// Line that opens the ids of an alignment: the query's first, then the subject's.
    ids: &'static [u8],
    /// Line that closes them.
    ids_close: &'static [u8],
    /// Line that must stand before a local id (JSON), or nothing.
    local: &'static [u8],
    /// What stands before the N of `Query_N`.
    before: &'static [u8],
    /// Whether a kind of location may stand before that (`id local`, `empty local`, `whole local`).
    kinds: bool,
}

impl Dialect {
    /// What follows `Query_` if the line begins as a local id of that name.
    fn after_id<'l>(&self, text: &'l [u8]) -> Option<&'l [u8]> {
        // Most lines end otherwise, and need no search.
        if !text.ends_with(b"\"\n") && !text.ends_with(b"\",\n") {
            return None;
        }
        let word = |byte: &u8| byte.is_ascii_lowercase() || matches!(byte, b' ' | b'-');
        let at = if self.kinds { memmem::find(text, self.before)? } else { 0 };
        if !text[..at].iter().all(word) {
            return None;
        }
        text[at..].strip_prefix(self.before)
    }
}

pub(super) static SEQALIGN: Dialect = Dialect {
    format: "BLAST alignment (ASN.1)",
    query: b"",
    ids: b"ids {\n",
    ids_close: b"},\n",
    local: b"",
    before: b"local str \"Query_",
    kinds: true,
};

pub(super) static ARCHIVE: Dialect = Dialect { format: "BLAST archive", query: b"id {\n", ..SEQALIGN };

pub(super) static JSON: Dialect = Dialect {
    format: "BLAST alignment (JSON)",
    query: b"",
    ids: b"\"ids\": [\n",
    ids_close: b"],\n",
    local: b"\"local\": {\n",
    before: b"\"str\": \"Query_",
    kinds: false,
};

pub(super) struct Ids {
    dialect: &'static Dialect,
    parsed: bool,
    records_before: u64,
    outline: Outline,
}

impl Ids {
    pub(super) fn new(dialect: &'static Dialect, options: &Options) -> Self {
        Self { dialect, parsed: options.parsed, records_before: 0, outline: Outline::default() }
    }
}

impl Joiner for Ids {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        self.outline = Outline::default();
        let mut state = State { n_records, ..State::default() };
        let mut message = Message::default();
        // Whether the block ends where a value does.
        let mut is_whole = self.dialect.query.is_empty();
        while let Some(line) = lines.next()? {
            is_whole = line == b"}\n";
            let indent = line.iter().position(|byte| *byte != b' ').unwrap_or(0);
            let text = &line[indent..];
            match state.local_number(self.dialect, text)? {
                Some((before, local, after)) if !self.parsed => {
                    self.outline.starts.keep_width(self.records_before, local);
                    out.write_all(&line[..indent])?;
                    out.write_all(before)?;
                    write!(out, "{}", self.records_before + local)?;
                    out.write_all(after)?;
                }
                _ => out.write_all(line)?,
            }
            state.step(self.dialect, indent, text);
            if !self.dialect.query.is_empty() && self.records_before > 0 && message.tells_line(text) {
                return Err(shape(
                    self.dialect.format,
                    "a message tells a line of the input, which is another one in a batch",
                ));
            }
        }
        if !is_whole {
            return Err(shape(self.dialect.format, "a batch does not end with a whole value"));
        }
        if !self.dialect.query.is_empty() && !self.parsed && state.n_queries != n_records {
            let problem = format!("a batch of {n_records} records has {} queries", state.n_queries);
            return Err(shape(self.dialect.format, problem));
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

/// A message of an archive, which is wrapped.
#[derive(Default)]
struct Message {
    is_open: bool,
    text: Vec<u8>,
}

impl Message {
    /// Takes in the next line, and tells whether a message ends with it that has a number after `line`.
    fn tells_line(&mut self, line: &[u8]) -> bool {
        if !self.is_open {
            self.is_open = line.starts_with(b"message \"");
            self.text.clear();
        }
        if !self.is_open {
            return false;
        }
        self.text.extend_from_slice(line.trim_ascii());
        self.text.push(b' ');
        self.is_open = !line.trim_ascii_end().ends_with(b"\"");
        !self.is_open
            && memmem::find_iter(&self.text, b"line ").any(|at| self.text.get(at + 5).is_some_and(u8::is_ascii_digit))
    }
}

/// Where in a block a line stands.
#[derive(Default)]
struct State {
    n_records: u64,
    n_queries: u64,
    after_query: bool,
    after_local: bool,
    /// Indentation of the ids that are open, and how many local ones were seen.
    ids: Option<(usize, u64)>,
}

type Shift<'l> = (&'l [u8], u64, &'l [u8]);

impl State {
    /// What stands before the number, the number and what stands behind, if the line is the id of a query.
    fn local_number<'l>(&mut self, dialect: &Dialect, text: &'l [u8]) -> Result<Option<Shift<'l>>, JoinError> {
        let Some(rest) = dialect.after_id(text) else {
            return Ok(None);
        };
        let before = &text[..text.len() - rest.len()];
        if !dialect.local.is_empty() && !self.after_local {
            return Ok(None);
        }
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = rest.split_at(digits);
        if !matches!(after, b"\"\n" | b"\",\n") {
            return Ok(None);
        }
        if let Some((_, seen)) = &mut self.ids {
            *seen += 1;
            if *seen > 1 {
                let problem = "a subject is called Query_N as the queries are; give it another name";
                return Err(shape(dialect.format, problem));
            }
        }
        let found = parse_count(digits).filter(|number| (1..=self.n_records).contains(number));
        let Some(number) = found else {
            let found = String::from_utf8_lossy(digits);
            return Err(shape(dialect.format, format!("Query_{found} in a batch of {} records", self.n_records)));
        };
        if self.after_query {
            // PSI-BLAST writes an archive for every round, so a query may come again.
            self.n_queries = self.n_queries.max(number.min(self.n_queries + 1));
            if number != self.n_queries {
                let problem = format!("expected Query_{}, found Query_{number}", self.n_queries + 1);
                return Err(shape(dialect.format, problem));
            }
        }
        Ok(Some((before, number, after)))
    }

    fn step(&mut self, dialect: &Dialect, indent: usize, text: &[u8]) {
        self.after_query = !dialect.query.is_empty() && text == dialect.query;
        self.after_local = text == dialect.local;
        if text == dialect.ids {
            self.ids = Some((indent, 0));
        } else if text == dialect.ids_close && self.ids.is_some_and(|(opened, _)| opened == indent) {
            self.ids = None;
        }
    }
}
