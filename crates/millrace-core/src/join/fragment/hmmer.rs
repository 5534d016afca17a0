//! The pipeline statistics in a report of `HMMER` 3.
//!
//! The search of the candidates counts the right number of targets, but not what the others have: their residues (or
//! nodes), and whether they passed a filter. The sums over the fragments are these numbers. They stand on five lines:
//!
//! ```text
//! Target sequences:                      11531  (4809460 residues searched)
//! Passed MSV filter:                       351  (0.0304397); expected 230.6 (0.02)
//! ```
//!
//! Where the candidates are searched alone, the numbers that HMMER computes from the number of targets are theirs, too, and
//! an option `-Z` with the number of all targets may have been added: its traces are taken out again.

use std::io::{BufRead, BufWriter, Write};

use crate::join::JoinError;

const FORMAT: &str = "HMMER report";

/// What a count of the pipeline stands behind, in the order of the lines; targets are sequences or models.
const TARGETS: [&[u8]; 2] = [b"Target sequences:", b"Target model(s):"];
const FILTERS: [&[u8]; 4] =
    [b"Passed MSV filter:", b"Passed bias filter:", b"Passed Vit filter:", b"Passed Fwd filter:"];

/// Column at which the counts begin, and their width.
const LABEL: usize = 29;
const WIDTH: usize = 15;

/// What the pipeline counts for one query in the whole database.
struct Counts {
    n_targets: u64,
    size: u64,
    passed: [u64; 4],
}

/// Which targets were searched for a report.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Searched {
    /// All, with fillers in the place of those that are no candidates.
    All,
    /// Candidates.
    Candidates,
    /// Candidates, with `-Z` added.
    CandidatesWithZ,
}

/// The traces of `-Z`: a line of the banner, and what `Z` was set by.
const BANNER_Z: &[u8] = b"# sequence search space set to:";
const INITIAL_Z: &[u8] = b"Initial search space (Z):";
const SET_BY_OPTION: &str = "  [as set by --Z on cmdline]";
const SET_BY_TARGETS: &str = "  [actual number of targets]";

/// The beginning of the line with all options in the trailer of a table.
const SETTINGS: &[u8] = b"# Option settings: ";

/// Takes the option that is the only line of `side` out of the trailer of a table.
pub(super) fn settings(side: &mut dyn BufRead, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let mut option = String::new();
    side.read_line(&mut option)?;
    let text = format!(" {} ", option.trim_end());
    let mut line = Vec::new();
    let mut n_changed = 0;
    while block.read_until(b'\n', &mut line)? != 0 {
        if line.starts_with(SETTINGS) {
            let mut found = memchr::memmem::find_iter(&line, text.as_bytes());
            let (Some(at), None) = (found.next(), found.next()) else {
                return Err(shape(&format!("the option settings name '{}' not once", text.trim())));
            };
            line.drain(at..at + text.len() - 1);
            n_changed += 1;
        }
        out.write_all(&line)?;
        line.clear();
    }
    if n_changed != 1 {
        return Err(shape("a table has not one line with its option settings"));
    }
    out.flush()?;
    Ok(())
}

/// Puts the counts of `side`, a line of six numbers for each query, into the statistics of each query.
pub(super) fn report(
    searched: Searched,
    side: &mut dyn BufRead,
    block: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), JoinError> {
    let mut n_banners = usize::from(searched == Searched::CandidatesWithZ);
    let mut out = BufWriter::with_capacity(1 << 16, out);
    let mut line = Vec::new();
    let mut counts: Option<Counts> = None;
    let mut n_changed = 0;
    loop {
        line.clear();
        if block.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        match &counts {
            None if line == b"Internal pipeline statistics summary:\n" => counts = Some(read_counts(side)?),
            Some(_) if line == b"//\n" => {
                if n_changed != 1 + FILTERS.len() {
                    return Err(shape("a query's statistics have not five counts of targets"));
                }
                counts = None;
                n_changed = 0;
            }
            Some(known) => n_changed += usize::from(known.put(searched, &mut line)?),
            None if n_banners > 0 && line.starts_with(BANNER_Z) => {
                n_banners -= 1;
                continue;
            }
            None => {}
        }
        out.write_all(&line)?;
    }
    let mut more = String::new();
    if counts.is_some() || side.read_line(&mut more)? != 0 {
        return Err(shape("it has not as many queries as the searches of the fragments"));
    }
    if n_banners != 0 {
        return Err(shape("the banner does not name the option that was added"));
    }
    out.flush()?;
    Ok(())
}

fn shape(problem: &str) -> JoinError {
    JoinError::Shape { format: FORMAT, problem: problem.to_owned() }
}

fn read_counts(side: &mut dyn BufRead) -> Result<Counts, JoinError> {
    let mut text = String::new();
    side.read_line(&mut text)?;
    let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    let Ok(&[n_targets, size, msv, bias, viterbi, forward]) = numbers.as_deref() else {
        return Err(shape("it has not as many queries as the searches of the fragments"));
    };
    Ok(Counts { n_targets, size, passed: [msv, bias, viterbi, forward] })
}

impl Counts {
    /// Changes `line` if it shows what the whole search shows otherwise; whether it is one of the five.
    fn put(&self, searched: Searched, line: &mut Vec<u8>) -> Result<bool, JoinError> {
        let is = |label: &&[u8]| line.starts_with(label);
        if searched == Searched::CandidatesWithZ && line.starts_with(INITIAL_Z) {
            *line = String::from_utf8_lossy(line).replace(SET_BY_OPTION, SET_BY_TARGETS).into_bytes();
            return Ok(false);
        }
        let text = String::from_utf8_lossy(line);
        let unknown = || shape(&format!("an unknown line '{}'", text.trim_end()));
        let (Some(label), Some((numbers, rest))) =
            (text.get(..LABEL), text.get(LABEL..).and_then(|rest| rest.split_once('(')))
        else {
            return Ok(false);
        };
        let changed = if TARGETS.iter().any(is) {
            if searched == Searched::All && numbers.trim().parse() != Ok(self.n_targets) {
                return Err(unknown());
            }
            let (_, unit) = rest.split_once(' ').ok_or_else(unknown)?;
            format!("{label}{:WIDTH$}  ({} {unit}", self.n_targets, self.size)
        } else if let Some(filter) = FILTERS.iter().position(is) {
            let (_, expected) = rest.split_once(')').ok_or_else(unknown)?;
            let passed = self.passed[filter];
            let part = general(passed as f64 / self.n_targets as f64);
            let expected = if searched == Searched::All {
                expected.to_owned()
            } else {
                self.expect(expected.trim_end()).ok_or_else(unknown)?
            };
            format!("{label}{passed:WIDTH$}  ({part}){expected}")
        } else {
            return Ok(false);
        };
        *line = changed.into_bytes();
        Ok(true)
    }

    /// The end of a filter's line, such as `; expected 230.6 (0.02)`, with the number that all targets let expect.
    fn expect(&self, line: &str) -> Option<String> {
        let share = line.strip_prefix("; expected ")?.split_once(" (")?.1.strip_suffix(')')?;
        let expected = share.parse::<f64>().ok()? * self.n_targets as f64;
        Some(format!("; expected {} ({share})\n", one_decimal(expected)))
    }
}

/// `value` as C's `%.1f` writes it: half to even, of the exact value.
fn one_decimal(value: f64) -> String {
    let quarters = value * 4.0;
    if quarters.fract() == 0.0 && quarters.rem_euclid(2.0) == 1.0 {
        // Only quarters can lie in the middle: of .25 and .75 the even neighbours are .2 and .8.
        let down = quarters.rem_euclid(4.0) == 1.0;
        return format!("{}.{}", value.floor(), if down { 2 } else { 8 });
    }
    format!("{value:.1}")
}

/// `value` as C's `%.6g` writes it.
fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        let places = usize::try_from(DIGITS - 1 - exponent).unwrap_or(0);
        return trim(&format!("{value:.places$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
}

/// Without the zeros at the end of a fraction.
fn trim(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: &str = "Query:       a  [M=2]\n\
        Description: Passed MSV filter: (1)\n\
        Internal pipeline statistics summary:\n\
        -------------------------------------\n\
        Query model(s):                            1  (63 nodes)\n\
        Target sequences:                      11531  (9657 residues searched)\n\
        Passed MSV filter:                        18  (0.00156101); expected 230.6 (0.02)\n\
        Passed bias filter:                       17  (0.00147429); expected 230.6 (0.02)\n\
        Passed Vit filter:                        14  (0.00121412); expected 11.5 (0.001)\n\
        Passed Fwd filter:                        13  (0.0011274); expected 0.1 (1e-05)\n\
        Initial search space (Z):              11531  [actual number of targets]\n\
        //\n[ok]\n";

    fn patched(side: &str, block: &str) -> Result<String, String> {
        let mut out = Vec::new();
        report(Searched::All, &mut side.as_bytes(), &mut block.as_bytes(), &mut out)
            .map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    #[test]
    fn statistics_are_those_of_the_whole() {
        let expected = BLOCK
            .replace("(9657 residues", "(4809460 residues")
            .replace(" 18  (0.00156101)", "351  (0.0304397)")
            .replace(" 17  (0.00147429)", "284  (0.0246293)")
            .replace("14  (0.00121412)", "37  (0.00320874)");
        assert_eq!(patched("11531 4809460 351 284 37 13\n", BLOCK), Ok(expected));
    }

    #[test]
    fn targets_may_be_models() {
        let targets = "Target sequences:                      11531  (9657 residues searched)";
        let block = BLOCK.replace(targets, "Target model(s):                       11531  (9657 nodes)");
        let patched = patched("11531 4809460 351 284 37 13\n", &block).unwrap();
        assert!(patched.contains("\nTarget model(s):                       11531  (4809460 nodes)\n"), "{patched}");
    }

    #[test]
    fn candidates_alone_have_the_statistics_of_all_targets() {
        let patched = |searched, block: &str| {
            let mut out = Vec::new();
            report(searched, &mut b"1250 90 351 284 37 13\n".as_slice(), &mut block.as_bytes(), &mut out)
                .map(|()| String::from_utf8_lossy(&out).into_owned())
                .map_err(|error| error.to_string())
        };
        let few =
            format!("# sequence search space set to:    1250\n{BLOCK}").replace("11531  [actual", " 1250  [actual");
        let few = few.replace("[actual number of targets]", "[as set by --Z on cmdline]");
        let whole = patched(Searched::CandidatesWithZ, &few).unwrap();
        for line in [
            "Target sequences:                       1250  (90 residues searched)\n",
            "Passed MSV filter:                       351  (0.2808); expected 25.0 (0.02)\n",
            "Passed Vit filter:                        37  (0.0296); expected 1.2 (0.001)\n",
            "Initial search space (Z):               1250  [actual number of targets]\n",
        ] {
            assert!(whole.contains(line), "{line} {whole}");
        }
        assert!(!whole.contains("set to"));
        assert!(patched(Searched::Candidates, &few).unwrap().contains("# sequence search space set to:    1250\n"));
        assert!(patched(Searched::CandidatesWithZ, BLOCK).unwrap_err().contains("the banner"));
    }

    #[test]
    fn added_option_is_taken_out_of_the_settings() {
        let patched = |table: &str| {
            let mut out = Vec::new();
            settings(&mut b"-Z 12".as_slice(), &mut table.as_bytes(), &mut out)
                .map(|()| String::from_utf8_lossy(&out).into_owned())
                .map_err(|error| error.to_string())
        };
        let table = "a b\n#\n# Option settings: hmmscan -o x -Z 12 --cut_ga p q \n# [ok]\n";
        assert_eq!(patched(table).unwrap(), table.replace(" -Z 12", ""));
        assert!(patched("a\n# [ok]\n").unwrap_err().contains("not one line"));
        assert!(patched(&table.replace("12", "13")).unwrap_err().contains("not once"));
    }

    #[test]
    fn middles_are_rounded_to_even() {
        let cases = [
            (0.25, "0.2"),
            (0.75, "0.8"),
            (1.25, "1.2"),
            (2.0, "2.0"),
            (1.5, "1.5"),
            (0.05, "0.1"),
            (0.15, "0.1"),
            (399.96, "400.0"),
        ];
        for (value, text) in cases {
            assert_eq!(one_decimal(value), text);
        }
    }

    #[test]
    fn other_queries_or_targets_are_refused() {
        let problem = |side: &str, block: &str| patched(side, block).unwrap_err();
        assert!(problem("", BLOCK).contains("not as many queries"));
        assert!(problem("11531 1 1 1 1 1\n11531 1 1 1 1 1\n", BLOCK).contains("not as many queries"));
        assert!(problem("11530 1 1 1 1 1\n", BLOCK).contains("unknown line 'Target sequences:"));
        let cut = BLOCK.replace("Passed Fwd filter:", "Other");
        assert!(problem("11531 1 1 1 1 1\n", &cut).contains("not five counts"));
    }

    #[test]
    fn numbers_are_those_of_c() {
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (351.0 / 11531.0, "0.0304397"),
            (13.0 / 11531.0, "0.0011274"),
            (1.0 / 60.0, "0.0166667"),
            (1.0 / 20000.0, "5e-05"),
            (0.000_099_999_96, "0.0001"),
            (0.999_999_9, "1"),
            (3.0 / 7.0e9, "4.28571e-10"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value), text);
        }
    }
}
