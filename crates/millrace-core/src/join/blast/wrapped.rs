//! `-outfmt 5`, `15` and `16`: one document, a head and a foot around the searches.
//!
//! BLAST writes these line by line, and no text of the user's can bring a line end into them, so the place of a value
//! is told by what its line begins with.

use std::io::{BufRead, Write};

use super::Options;
use super::fields::{query_number, shift_message};
use crate::join::layout::{Before, Outline, Starts, digest};
use crate::join::lines::{Common, Lines, buffered, keep, parse_count, shape};
use crate::join::{JoinError, Joiner};

/// A value that stands alone on its line, between two fixed texts.
struct Place {
    before: &'static [u8],
    after: &'static [&'static [u8]],
}

impl Place {
    /// The value, if `line` (without its indentation) is this place.
    fn value<'l>(&self, line: &'l [u8]) -> Option<&'l [u8]> {
        let rest = line.strip_prefix(self.before)?;
        self.after.iter().find_map(|after| rest.strip_suffix(*after))
    }
}

/// How one format is wrapped.
pub(super) struct Dialect {
    format: &'static str,
    /// Last line of the head.
    opens: &'static [u8],
    /// First line of the foot.
    closes: &'static [u8],
    /// What the foot has at its end; empty lines may follow.
    ends: &'static [u8],
    /// What stands between the searches of two blocks.
    between: &'static [u8],
    /// Lines of the head that tell of the first query, by their beginnings.
    first_query: &'static [&'static [u8]],
    /// Counts the searches of the whole run.
    search_number: Option<Place>,
    query_id: Place,
    message: Place,
}

pub(super) static XML: Dialect = Dialect {
    format: "BLAST XML",
    opens: b"<BlastOutput_iterations>\n",
    closes: b"</BlastOutput_iterations>\n",
    ends: b"</BlastOutput>\n",
    between: b"",
    first_query: &[b"  <BlastOutput_query-ID>", b"  <BlastOutput_query-def>", b"  <BlastOutput_query-len>"],
    search_number: Some(Place { before: b"<Iteration_iter-num>", after: &[b"</Iteration_iter-num>\n"] }),
    query_id: Place { before: b"<Iteration_query-ID>", after: &[b"</Iteration_query-ID>\n"] },
    message: Place { before: b"<Iteration_message>", after: &[b"</Iteration_message>\n"] },
};

pub(super) static XML2: Dialect = Dialect {
    format: "BLAST XML2",
    opens: b">\n",
    closes: b"</BlastXML2>\n",
    ends: b"</BlastXML2>\n",
    between: b"\n",
    first_query: &[],
    search_number: None,
    query_id: Place { before: b"<query-id>", after: &[b"</query-id>\n"] },
    message: Place { before: b"<message>", after: &[b"</message>\n"] },
};

pub(super) static JSON: Dialect = Dialect {
    format: "BLAST JSON",
    opens: b"\"BlastOutput2\": [\n",
    closes: b"]\n",
    ends: b"}\n",
    between: b",\n",
    first_query: &[],
    search_number: None,
    query_id: Place { before: b"\"query_id\": \"", after: &[b"\",\n"] },
    message: Place { before: b"\"message\": \"", after: &[b"\"\n", b"\",\n"] },
};

pub(super) struct Wrapped {
    dialect: &'static Dialect,
    parsed: bool,
    head: Common,
    foot: Common,
    records_before: u64,
    searches_before: u64,
    /// Another joiner has written the head.
    headed: bool,
    outline: Outline,
}

impl Wrapped {
    pub(super) fn new(dialect: &'static Dialect, options: &Options) -> Self {
        let (head, foot, outline) = Default::default();
        let parsed = options.parsed;
        Self { dialect, parsed, head, foot, records_before: 0, searches_before: 0, headed: false, outline }
    }

    /// Reads the head; writes it, or what separates this block from the one before.
    fn head(&mut self, lines: &mut Lines<'_>, out: &mut impl Write) -> Result<(), JoinError> {
        let dialect = self.dialect;
        let (mut head, mut common) = (Vec::new(), Vec::new());
        loop {
            let line = lines.next()?.ok_or_else(|| shape(dialect.format, "a batch ends within its head"))?;
            keep(&mut head, line, dialect.format)?;
            if !dialect.first_query.iter().any(|start| line.starts_with(start)) {
                common.extend_from_slice(line);
            }
            if line == dialect.opens {
                break;
            }
        }
        self.outline.head = Some(digest(&common));
        self.outline.lead = head.len() as i64 - dialect.between.len() as i64;
        out.write_all(if self.head.get().is_none() && !self.headed { &head } else { dialect.between })?;
        self.head.check(common, dialect.format, "head")
    }

    fn foot(&mut self, lines: &mut Lines<'_>) -> Result<(), JoinError> {
        let mut foot = self.dialect.closes.to_vec();
        while let Some(line) = lines.next()? {
            keep(&mut foot, line, self.dialect.format)?;
        }
        if !foot.strip_suffix(b"\n").unwrap_or(&foot).ends_with(self.dialect.ends) && !foot.ends_with(self.dialect.ends)
        {
            return Err(shape(self.dialect.format, "a batch ends within its foot"));
        }
        self.outline.foot = Some(digest(&foot));
        self.foot.check(foot, self.dialect.format, "foot")
    }
}

impl Joiner for Wrapped {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let mut out = buffered(out);
        let mut lines = Lines::new(block);
        self.outline = Outline::default();
        self.head(&mut lines, &mut out)?;
        let mut searches = Searches {
            dialect: self.dialect,
            parsed: self.parsed,
            records_before: self.records_before,
            searches_before: self.searches_before,
            query: 0,
            n_searches: 0,
            starts: Starts::default(),
        };
        loop {
            let cut = || shape(self.dialect.format, "a batch ends without its foot");
            let line = lines.next()?.ok_or_else(cut)?;
            if line == self.dialect.closes {
                break;
            }
            searches.line(line, &mut out)?;
        }
        searches.check(n_records)?;
        self.outline.starts = searches.starts;
        self.outline.numbered = self.dialect.search_number.is_some();
        self.outline.counts.extend(self.outline.numbered.then_some(searches.n_searches));
        self.searches_before += searches.n_searches;
        self.records_before += n_records;
        self.foot(&mut lines)?;
        out.flush()?;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if let Some(foot) = self.foot.get() {
            out.write_all(foot)?;
        }
        Ok(())
    }

    fn resume(&mut self, before: &Before) {
        self.records_before = before.records;
        self.searches_before = before.counts.first().copied().unwrap_or(0);
        self.headed = before.headed;
    }

    fn outline(&self) -> Option<Outline> {
        Some(self.outline.clone())
    }
}

/// What stands before the name in an id that is only known here.
const LOCAL: &[u8] = b"lcl|";

/// The searches of one block.
struct Searches {
    dialect: &'static Dialect,
    parsed: bool,
    records_before: u64,
    searches_before: u64,
    /// Number of the query at hand, within the block.
    query: u64,
    n_searches: u64,
    starts: Starts,
}

impl Searches {
    fn line(&mut self, line: &[u8], out: &mut impl Write) -> Result<(), JoinError> {
        let indent = line.iter().position(|byte| *byte != b' ').unwrap_or(0);
        let text = &line[indent..];
        let dialect = self.dialect;
        let (place, value) = if let Some(value) = dialect.query_id.value(text) {
            (&dialect.query_id, self.query_id(value)?)
        } else if let Some(value) = dialect.message.value(text) {
            (&dialect.message, self.message(value)?)
        } else if let Some((place, value)) = dialect.search_number.as_ref().and_then(|p| Some((p, p.value(text)?))) {
            (place, self.search_number(value)?)
        } else {
            out.write_all(line)?;
            return Ok(());
        };
        let Some(value) = value else {
            out.write_all(line)?;
            return Ok(());
        };
        let after = place.after.iter().find(|after| text.ends_with(after)).map_or(&b""[..], |after| after);
        for part in [&line[..indent], place.before, &value, after] {
            out.write_all(part)?;
        }
        Ok(())
    }

    fn query_id(&mut self, id: &[u8]) -> Result<Option<Vec<u8>>, JoinError> {
        if self.parsed {
            return Ok(None);
        }
        // psiblast of BLAST+ 2.16 and 2.17 writes the id as a whole.
        let (kind, name) = id.strip_prefix(LOCAL).map_or((&b""[..], id), |name| (LOCAL, name));
        let next = query_number(name).filter(|number| *number == self.query || *number == self.query + 1);
        let Some(number) = next else {
            let found = String::from_utf8_lossy(id);
            return Err(self.wrong(format!("expected Query_{}, found '{found}'", self.query + 1)));
        };
        self.query = number;
        self.starts.keep_width(self.records_before, number);
        Ok(Some([kind, format!("Query_{}", self.records_before + number).as_bytes()].concat()))
    }

    fn search_number(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>, JoinError> {
        self.n_searches += 1;
        if parse_count(value) != Some(self.n_searches) {
            let found = String::from_utf8_lossy(value);
            return Err(self.wrong(format!("expected iteration {}, found '{found}'", self.n_searches)));
        }
        Ok(Some((self.searches_before + self.n_searches).to_string().into_bytes()))
    }

    fn message(&self, text: &[u8]) -> Result<Option<Vec<u8>>, JoinError> {
        if self.parsed {
            return Ok(None);
        }
        let shifted = shift_message(text, self.query, self.records_before).ok_or_else(|| {
            let found = String::from_utf8_lossy(text);
            self.wrong(format!("cannot tell which numbers in the message '{found}' are BLAST's"))
        })?;
        Ok(Some(shifted))
    }

    fn check(&self, n_records: u64) -> Result<(), JoinError> {
        if !self.parsed && self.query != n_records {
            return Err(self.wrong(format!("a batch of {n_records} records has {} queries", self.query)));
        }
        Ok(())
    }

    fn wrong(&self, problem: String) -> JoinError {
        shape(self.dialect.format, problem)
    }
}
