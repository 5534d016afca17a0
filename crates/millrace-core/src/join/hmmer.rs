//! Joins for the outputs of the HMMER 3 search programs.
//!
//! Every rule was read off HMMER itself; `docs/exactness-hmmer.md` has one line for each program and output with the
//! test that shows it. HMMER writes run-wide text at three places only: the banner of the report, the header of a
//! table (written with the first query) and the trailer of a table. The joiners know these places and copy all else.

mod added;
mod lines;
mod report;
mod table;

use super::{JoinError, Joiner};
use added::Added;

/// Makes the joiner `name` (it begins with `hmmer-`).
///
/// | name | for | once in the output |
/// |---|---|---|
/// | `hmmer-report` | `-o` or standard output | banner, `[ok]` |
/// | `hmmer-table` | `--tblout`, `--domtblout` | header, trailer |
/// | `hmmer-sections` | `--pfamtblout`, `--dfamtblout` (a header for every query) | trailer, if there is one |
///
/// The parameter lists, joined by commas, the options that were added to the user's (`--cpu 0`), whose traces are
/// removed; `--cpu 1=2` says that the user's own command prints 2.
///
/// # Errors
/// [`JoinError::Unknown`] if there is no such joiner or parameter.
pub(super) fn joiner(name: &str, parameter: &str) -> Result<Box<dyn Joiner>, JoinError> {
    let unknown = || JoinError::Unknown(format!("{name}:{parameter}"));
    let added = Added::parse(parameter).ok_or_else(unknown)?;
    Ok(match name {
        "hmmer-report" => Box::new(report::Report::new(added)),
        "hmmer-table" => Box::new(table::Table::new(added, true)),
        "hmmer-sections" => Box::new(table::Table::new(added, false)),
        _ => return Err(unknown()),
    })
}
