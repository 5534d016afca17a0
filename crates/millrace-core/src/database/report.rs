//! Reads the reports of `HMMER` 3 searches: which targets were found, and how many passed each filter.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use memchr::memchr;

use super::index::Index;
use super::{Error, Place};

/// What the pipeline counted for one query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) n_targets: u64,
    /// Residues or nodes of the targets.
    pub(super) size: u64,
    /// Targets that passed the MSV, bias, Viterbi and Forward filters.
    pub(super) passed: [u64; 4],
}

/// What one search found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Report<'a> {
    /// Names of the targets that any query found.
    pub(super) names: BTreeSet<&'a [u8]>,
    /// One a query.
    pub(super) queries: Vec<Counts>,
}

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
    /// Reads a report that was written with `--noali` and without `--acc`.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, Error> {
        let mut report = Self::default();
        let mut part = Part::Between;
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
                        report.names.insert(name);
                    }
                    Part::Rows
                }
                Part::Statistics if line == b"//" => {
                    if n_counted != 1 + FILTERS.len() {
                        return Err(wrong(line));
                    }
                    report.queries.push(std::mem::take(&mut counts));
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
            _ => Err(Error::Data { what: "HMMER's report".to_owned(), problem: "it is cut off".to_owned() }),
        }
    }
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

/// The candidates of a batch, in their order, from the reports of all fragments; `side` gets the sums of the counts.
///
/// # Errors
/// [`Error::Data`] if a report is not understood, or has other targets than the fragment.
pub(super) fn candidates(found: &[&[u8]], prepared: &Path, cuts: &[u64], side: &Path) -> Result<Vec<Place>, Error> {
    let mut sums: Vec<Counts> = Vec::new();
    let mut places = Vec::new();
    for (fragment, (text, cut)) in found.iter().zip(cuts.windows(2)).enumerate() {
        let report = Report::parse(text)?;
        if fragment == 0 {
            sums = vec![Counts::default(); report.queries.len()];
        }
        let shape = |problem: String| Error::Data { what: format!("search of fragment {}", fragment + 1), problem };
        if report.queries.len() != sums.len() {
            let (n, expected) = (report.queries.len(), sums.len());
            return Err(shape(format!("it has {n} queries, the first fragment's has {expected}")));
        }
        for (sum, counts) in sums.iter_mut().zip(&report.queries) {
            if counts.n_targets != cut[1] - cut[0] {
                let (n, expected) = (counts.n_targets, cut[1] - cut[0]);
                return Err(shape(format!("HMMER read {n} targets where there are {expected}")));
            }
            sum.add(counts);
        }
        let index = Index::open(prepared, fragment)?;
        for name in report.names {
            if !index.find(name, &mut places)? {
                return Err(shape(format!("no target is called '{}'", String::from_utf8_lossy(name))));
            }
        }
    }
    places.sort_unstable();
    places.dedup();
    let lines: String = sums.iter().map(Counts::line).collect();
    fs::write(side, lines).map_err(Error::io(side))?;
    Ok(places)
}

impl Counts {
    fn line(&self) -> String {
        let [msv, bias, viterbi, forward] = self.passed;
        format!("{} {} {msv} {bias} {viterbi} {forward}\n", self.n_targets, self.size)
    }
}
