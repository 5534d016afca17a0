//! Reads the reports of `HMMER` 3 searches: which targets were found, and how many passed each filter.
//!
//! What is known of a batch from earlier searches has a form of its own, with a line for each query: the six counts, or
//! `-` if they are not known, a colon, and the ordinals of the targets that were found.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use memchr::memchr;

use super::index::{Index, find_places};
use super::{Error, Place, Whole};

/// What the pipeline counted for one query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) n_targets: u64,
    /// Residues or nodes of the targets.
    pub(super) size: u64,
    /// Targets that passed the MSV, bias, Viterbi and Forward filters.
    pub(super) passed: [u64; 4],
}

/// What a search found for one query.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Names of the targets, if they are known by name.
    pub(super) names: BTreeSet<&'a [u8]>,
    /// Ordinals of the targets, if these are known.
    pub(super) ordinals: Vec<u64>,
    /// None: not known.
    pub(super) counts: Option<Counts>,
}

/// What one search found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report<'a> {
    pub(super) queries: Vec<Found<'a>>,
    /// Whether earlier searches have found it, in a part of the targets.
    pub(super) is_known: bool,
}

/// First line of what is known from earlier searches, and the last one.
const KNOWN: &[u8] = b"# known targets\n";
const KNOWN_END: &[u8] = b"[ok]\n";

/// Where in a query's part of the report a line is.
enum Part {
    /// Before the list of hits, or after it.
    Between,
    /// In the list's header.
    Header,
    Rows,
    Statistics,
}

const FILTERS: [&[u8]; 4] =
    [b"Passed MSV filter:", b"Passed bias filter:", b"Passed Vit filter:", b"Passed Fwd filter:"];

/// Which word of a row of the list of hits is the target's name.
const NAME: usize = 8;

impl<'a> Report<'a> {
    /// Reads a report that was written with `--noali` and without `--acc`, or what is known from earlier searches.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Error> {
        if let Some(lines) = text.strip_prefix(KNOWN) {
            return Self::parse_known(lines);
        }
        let mut report = Self::default();
        let mut part = Part::Between;
        let mut found = Found::default();
        let mut counts = Counts::default();
        let mut n_counted = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest).unwrap_or(rest.len());
            let line = &rest[..end];
            rest = &rest[(end + 1).min(rest.len())..];
            part = match part {
                Part::Between if line.starts_with(b"Scores for complete sequence") => Part::Header,
                Part::Between if line == b"Internal pipeline statistics summary:" => Part::Statistics,
                Part::Header if line.starts_with(b"    ------- ------ -----") => Part::Rows,
                Part::Rows if line.is_empty() => Part::Between,
                Part::Rows => {
                    if line != b"  ------ inclusion threshold ------" {
                        let name = words(line).nth(NAME).ok_or_else(|| wrong(line))?;
                        found.names.insert(name);
                    }
                    Part::Rows
                }
                Part::Statistics if line == b"//" => {
                    if n_counted != 1 + FILTERS.len() {
                        return Err(wrong(line));
                    }
                    found.counts = Some(std::mem::take(&mut counts));
                    report.queries.push(std::mem::take(&mut found));
                    n_counted = 0;
                    Part::Between
                }
                Part::Statistics => {
                    n_counted += usize::from(counts.read(line)?);
                    Part::Statistics
                }
                other => other,
            };
        }
        match part {
            Part::Between if text.ends_with(b"\n[ok]\n") => Ok(report),
            _ => Err(cut_off()),
        }
    }

    fn parse_known(lines: &'a [u8]) -> Result<Self, Error> {
        let lines = lines.strip_suffix(KNOWN_END).ok_or_else(cut_off)?;
        let queries = lines.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let at = memchr(b':', line).filter(|_| line.ends_with(b"\n")).ok_or_else(|| wrong(line))?;
            let (counts, ordinals) = (&line[..at], &line[at + 1..line.len() - 1]);
            let counts = (counts != b"-").then(|| Counts::parse(counts).ok_or_else(|| wrong(line))).transpose()?;
            let ordinals = words(ordinals).map(number).collect::<Option<Vec<_>>>().ok_or_else(|| wrong(line))?;
            Ok(Found { names: BTreeSet::new(), ordinals, counts })
        });
        Ok(Self { queries: queries.collect::<Result<_, _>>()?, is_known: true })
    }
}

fn cut_off() -> Error {
    Error::Data { what: "HMMER's report".to_owned(), problem: "it is cut off".to_owned() }
}

impl Counts {
    /// Reads a line of the statistics; false if it counts nothing that is wanted.
    fn read(&mut self, line: &[u8]) -> Result<bool, Error> {
        for label in [b"Target sequences:".as_slice(), b"Target model(s):"] {
            if let Some(values) = line.strip_prefix(label) {
                let mut values = words(values).map(|word| word.strip_prefix(b"(").unwrap_or(word));
                self.n_targets = values.next().and_then(number).ok_or_else(|| wrong(line))?;
                self.size = values.next().and_then(number).ok_or_else(|| wrong(line))?;
                return Ok(true);
            }
        }
        for (label, passed) in FILTERS.iter().zip(&mut self.passed) {
            if let Some(values) = line.strip_prefix(*label) {
                *passed = words(values).next().and_then(number).ok_or_else(|| wrong(line))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn add(&mut self, other: &Self) {
        self.n_targets += other.n_targets;
        self.size += other.size;
        for (sum, passed) in self.passed.iter_mut().zip(other.passed) {
            *sum += passed;
        }
    }
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty())
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn wrong(line: &[u8]) -> Error {
    let problem = format!("an unknown line '{}'", String::from_utf8_lossy(line));
    Error::Data { what: "HMMER's report".to_owned(), problem }
}

/// The candidates of a batch, in their order, from the reports of all parts of the targets; `side` gets the sums of the
/// counts.
///
/// A report more than there are parts is that of the targets that are new since what is known of the only part was found.
///
/// # Errors
/// [`Error::Data`] if a report is not understood, or has other targets than the part.
pub(super) fn candidates(found: &[&[u8]], whole: &Whole<'_>, side: &Path) -> Result<Vec<Place>, Error> {
    let &Whole { prepared, cuts, n_new, .. } = whole;
    let reports = found.iter().map(|text| Report::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let sums = add_counts(&reports, cuts, n_new)?;
    let mut places = Vec::new();
    for (at, report) in reports.iter().enumerate() {
        let part = at.min(cuts.len() - 2);
        let index = Index::open(prepared, part)?;
        let names: BTreeSet<&[u8]> = report.queries.iter().flat_map(|query| &query.names).copied().collect();
        for name in names {
            if !index.find(name, &mut places)? {
                return Err(shape(at, format!("no target is called '{}'", String::from_utf8_lossy(name))));
            }
        }
        let ordinals: Vec<u64> = report.queries.iter().flat_map(|query| &query.ordinals).copied().collect();
        if !ordinals.is_empty() {
            find_places(prepared, &ordinals, &mut places)?;
        }
    }
    places.sort_unstable();
    places.dedup();
    let lines = sums.iter().map(Option::as_ref).collect::<Option<Vec<_>>>().unwrap_or_default();
    let lines: String = lines.into_iter().map(Counts::line).collect();
    fs::write(side, lines).map_err(Error::io(side))?;
    Ok(places)
}

fn shape(part: usize, problem: String) -> Error {
    Error::Data { what: format!("search of fragment {}", part + 1), problem }
}

/// Adds up the counts of each query; none where they are not known. See [`candidates`].
fn add_counts(reports: &[Report<'_>], cuts: &[u64], n_new: u64) -> Result<Vec<Option<Counts>>, Error> {
    let n_queries = reports.first().map_or(0, |report| report.queries.len());
    for (at, report) in reports.iter().enumerate() {
        if report.queries.len() != n_queries {
            let n = report.queries.len();
            return Err(shape(at, format!("it has {n} queries, the first fragment's has {n_queries}")));
        }
    }
    let (parts, new) = reports.split_at(reports.len().min(cuts.len() - 1));
    let mut sums = vec![Some(Counts::default()); n_queries];
    for (at, (report, cut)) in parts.iter().zip(cuts.windows(2)).enumerate() {
        for (number, (query, sum)) in report.queries.iter().zip(&mut sums).enumerate() {
            let new = new.first().map(|report| report.queries[number].counts.unwrap_or_default());
            check_targets(parts.len(), new.map_or(0, |counts| counts.n_targets), n_new)?;
            let (Some(mut counts), Some(total)) = (query.counts, sum.as_mut()) else {
                *sum = None;
                continue;
            };
            if let Some(new) = new.filter(|_| report.is_known) {
                counts.add(&new);
            }
            check_targets(at, counts.n_targets, cut[1] - cut[0])?;
            total.add(&counts);
        }
    }
    Ok(sums)
}

fn check_targets(part: usize, n: u64, expected: u64) -> Result<(), Error> {
    if n == expected {
        return Ok(());
    }
    Err(shape(part, format!("HMMER read {n} targets where there are {expected}")))
}

impl Counts {
    fn line(&self) -> String {
        let [msv, bias, viterbi, forward] = self.passed;
        format!("{} {} {msv} {bias} {viterbi} {forward}\n", self.n_targets, self.size)
    }

    /// Reads the six numbers of a line.
    fn parse(line: &[u8]) -> Option<Self> {
        let numbers: Vec<u64> = words(line).map(number).collect::<Option<_>>()?;
        let &[n_targets, size, msv, bias, viterbi, forward] = numbers.as_slice() else { return None };
        Some(Self { n_targets, size, passed: [msv, bias, viterbi, forward] })
    }

    /// The six numbers in the order of a line.
    pub(super) fn numbers(&self) -> Vec<u64> {
        [&[self.n_targets, self.size], self.passed.as_slice()].concat()
    }
}
