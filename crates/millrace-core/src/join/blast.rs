//! Joins for the output formats of BLAST+.
//!
//! Every rule here was read off BLAST+ itself; `docs/exactness-blast.md` has one line for each program and format with
//! the test that shows it. A joiner knows where BLAST writes what depends on the whole run (banner, footer, counters,
//! the number in `Query_N`) and touches nothing else, so that a subject or a title that looks alike is never changed.

mod fields;
mod ids;
mod report;
mod tabular;
mod wrapped;

use super::{JoinError, Joiner};

/// Makes the joiner `name` (it begins with `blast-`).
///
/// | name | for `-outfmt` | parameters, joined by commas |
/// |---|---|---|
/// | `blast-report` | 0 to 4, with or without `-html` | |
/// | `blast-tabular` | 6, 10 | `columns=N`, `delim=HEX`, `unnamed` |
/// | `blast-comments` | 7 | `columns=N`, `delim=HEX` |
/// | `blast-xml` | 5 | `parsed` |
/// | `blast-xml2` | 16 | `parsed` |
/// | `blast-json` | 15 | `parsed` |
/// | `blast-archive` | 11, in batches that are whole passes | `parsed` |
/// | `blast-seqalign` | 8 | `parsed` |
/// | `blast-seqalign-json` | 12 | `parsed` |
///
/// `columns`: how many leading columns hold the query's name; `delim`: the text between columns, in
/// hexadecimal;
/// `unnamed`: every `Query_N` in these columns is known to be BLAST's own name for a record without one;
/// `parsed`: names come from the records (`-parse_deflines`), so there is no `Query_N` to run on.
///
/// # Errors
/// [`JoinError::Unknown`] if there is no such joiner or parameter.
pub(super) fn joiner(name: &str, parameter: &str) -> Result<Box<dyn Joiner>, JoinError> {
    let unknown = || JoinError::Unknown(format!("{name}:{parameter}"));
    let options = Options::parse(parameter).ok_or_else(unknown)?;
    Ok(match name {
        "blast-report" => Box::new(report::Report::default()),
        "blast-tabular" => Box::new(tabular::Tabular::new(&options)),
        "blast-comments" => Box::new(tabular::Comments::new(&options)),
        "blast-xml" => Box::new(wrapped::Wrapped::new(&wrapped::XML, &options)),
        "blast-xml2" => Box::new(wrapped::Wrapped::new(&wrapped::XML2, &options)),
        "blast-json" => Box::new(wrapped::Wrapped::new(&wrapped::JSON, &options)),
        "blast-archive" => Box::new(ids::Ids::new(&ids::ARCHIVE, &options)),
        "blast-seqalign" => Box::new(ids::Ids::new(&ids::SEQALIGN, &options)),
        "blast-seqalign-json" => Box::new(ids::Ids::new(&ids::JSON, &options)),
        _ => return Err(unknown()),
    })
}

/// What the part after the colon says.
#[derive(Debug)]
struct Options {
    columns: usize,
    delim: Vec<u8>,
    unnamed: bool,
    parsed: bool,
}

impl Options {
    fn parse(parameter: &str) -> Option<Self> {
        let mut options = Self { columns: 0, delim: b"\t".to_vec(), unnamed: false, parsed: false };
        for word in parameter.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None if word == "unnamed" => options.unnamed = true,
                None if word == "parsed" => options.parsed = true,
                Some(("columns", number)) => options.columns = number.parse().ok()?,
                Some(("delim", hex)) => options.delim = unhex(hex)?,
                _ => return None,
            }
        }
        Some(options)
    }
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(byte).collect();
    bytes.filter(|bytes| !bytes.is_empty())
}
