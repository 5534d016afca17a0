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

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "# hmmscan :: search\n# HMMER 3\n# - - - - - - - - - - -\n# query: q\n\
        # number of worker threads:        0\n# - - - - - - - - - - -\n\n";
    const TRAILER: &str = "#\n# Program:         hmmscan\n# Option settings: hmmscan --cpu 0 db q \n";

    fn join(spec: &str, blocks: &[(u64, String)]) -> Result<String, String> {
        let (name, parameter) = spec.split_once(':').unwrap_or((spec, ""));
        let mut out = Vec::new();
        let mut joiner = joiner(name, parameter).map_err(|error| error.to_string())?;
        for (n_records, block) in blocks {
            let mut block = block.as_bytes();
            joiner.block(*n_records, &mut block, &mut out).map_err(|error| error.to_string())?;
        }
        joiner.finish(&mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn report(body: &str) -> String {
        format!("{REPORT}{body}[ok]\n")
    }

    fn table(rows: &str, date: &str) -> String {
        format!("# target name  query\n#     ---- -----\n{rows}{TRAILER}# Date:            {date}\n# [ok]\n")
    }

    #[test]
    fn reports_share_banner_and_end() {
        let blocks = [(1, report("Query: a\n//\n")), (1, report("Query: b\n//\n"))];
        let joined = join("hmmer-report", &blocks);
        assert_eq!(joined, Ok(report("Query: a\n//\nQuery: b\n//\n")));
    }

    #[test]
    fn added_threads_are_taken_out_or_set_right() {
        let line = "# number of worker threads:        0\n";
        let blocks = [(1, report("//\n"))];
        let dropped = report("//\n").replace(line, "");
        assert_eq!(join("hmmer-report:--cpu 0", &blocks), Ok(dropped));
        let set = report("//\n").replace(line, "# number of worker threads:        2\n");
        assert_eq!(join("hmmer-report:--cpu 0=2", &blocks), Ok(set));
        let twice = join("hmmer-report:--dna", &blocks).unwrap_err();
        assert!(twice.contains("has not one line '# input query is asserted as:'"), "{twice}");
    }

    #[test]
    fn reports_of_another_shape_are_refused() {
        let problem = |blocks: &[(u64, String)]| join("hmmer-report", blocks).unwrap_err();
        assert!(problem(&[(1, String::new())]).contains("does not begin with HMMER's banner"));
        assert!(problem(&[(1, REPORT.to_owned())]).contains("does not end with '[ok]'"));
        assert!(problem(&[(2, report("//\n"))]).contains("a batch of 2 records has 1 queries"));
        let other = report("//\n").replace("query: q", "query: r");
        let differs = problem(&[(1, report("//\n")), (1, other)]);
        assert!(differs.contains("'# query: q' and '# query: r'"), "{differs}");
    }

    /// Joins blocks of which each has the form of the command that wrote it.
    fn join_forms(spec: &str, blocks: &[(u32, String)]) -> Result<String, String> {
        let mut out = Vec::new();
        let mut joiner = crate::join::joiner(spec).map_err(|error| error.to_string())?;
        for (form, block) in blocks {
            joiner.set_form(*form);
            joiner.block(1, &mut block.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        }
        joiner.finish(&mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn banner_of_another_form_is_left_out() {
        let other = |body: &str| report(body).replace("query: q", "query: was/q");
        let blocks = [(0, report("a\n//\n")), (1, other("b\n//\n")), (0, report("c\n//\n")), (1, other("d\n//\n"))];
        let joined = join_forms("hmmer-report", &blocks);
        assert_eq!(joined, Ok(report("a\n//\nb\n//\nc\n//\nd\n//\n")));
        let mixed = [(0, report("//\n")), (1, other("//\n")), (1, report("//\n"))];
        assert!(join_forms("hmmer-report", &mixed).unwrap_err().contains("'# query: was/q' and '# query: q'"));
        let first = join_forms("hmmer-report", &blocks[1..]).unwrap_err();
        assert!(first.contains("computed under other paths"), "{first}");
    }

    #[test]
    fn trailer_of_another_form_is_left_out() {
        let other = table("b q\n", "Wed").replace(" db q", " was/db q");
        let blocks = [(0, table("a q\n", "Mon")), (1, other)];
        assert_eq!(join_forms("hmmer-table", &blocks), Ok(table("a q\nb q\n", "Mon")));
    }

    #[test]
    fn tables_keep_the_first_header_and_the_last_trailer() {
        let blocks = [(1, table("#a q1\n", "Mon")), (1, table("", "Tue")), (1, table("b q3\n", "Wed"))];
        let expected = table("#a q1\nb q3\n", "Wed").replace(" --cpu 0", "");
        assert_eq!(join("hmmer-table:--cpu 0", &blocks), Ok(expected));
    }

    #[test]
    fn a_table_without_a_first_header_has_none() {
        let start = "# target name  query\n#     ---- -----\n";
        let bare = table("", "Mon").replace(start, "");
        let blocks = [(1, bare), (1, table("b q\n", "Tue"))];
        let expected = table("b q\n", "Tue").replace(start, "");
        assert_eq!(join("hmmer-table", &blocks), Ok(expected));
    }

    #[test]
    fn cut_tables_are_refused() {
        let cut = "# target name  query\n# ---\na q\n".to_owned();
        let problem = join("hmmer-table", &[(1, cut.clone())]).unwrap_err();
        assert!(problem.contains("does not end with HMMER's trailer"), "{problem}");
        assert_eq!(join("hmmer-sections", &[(1, cut.clone())]), Ok(cut));
    }

    #[test]
    fn parts_of_a_trailer_are_refused() {
        let whole = table("a q\n", "Mon");
        let unended = whole.replace("# [ok]\n", "");
        let unbegun = whole.replace("# Program: ", "");
        for cut in [unended, unbegun] {
            for spec in ["hmmer-sections", "hmmer-table"] {
                let problem = join(spec, &[(1, cut.clone())]).unwrap_err();
                assert!(problem.contains("but with a part of it"), "{problem}");
            }
        }
    }
}
