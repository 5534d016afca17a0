//! Targets of `HMMER` by their content, and by their names: what a search has found, apart from where it was found.

use std::path::Path;

use super::index::{DIGEST, hash, shorten};
use super::report::Report;
use super::{Error, profiles, sequences};

/// Digests of the targets in `path`, one after the other: of the residues of a sequence, or of all that a search computes
/// with of a pressed profile. A copy of an earlier target has a digest of its own, by its number among the copies: so each
/// target counts as often as it is there.
///
/// # Errors
/// [`Error::Data`] if the file is not understood.
pub fn target_digests(path: &Path, is_pressed: bool) -> Result<Vec<u8>, Error> {
    let mut digests = if is_pressed { profiles::digest(path)? } else { sequences::digest(path)? };
    let mut order: Vec<usize> = (0..digests.len()).collect();
    order.sort_unstable_by_key(|&at| (digests[at], at));
    let (mut of, mut n_copies) = ([0; DIGEST], 0_u64);
    for (number, at) in order.into_iter().enumerate() {
        if number == 0 || digests[at] != of {
            (of, n_copies) = (digests[at], 0);
            continue;
        }
        n_copies += 1;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&of).update(&n_copies.to_le_bytes());
        digests[at] = shorten(&hasher);
    }
    Ok(digests.concat())
}

/// What was found for one query.
#[derive(Debug, PartialEq, Eq)]
pub struct QueryTargets {
    /// Ordinals, ascending; none if a name is that of several targets.
    pub ordinals: Option<Vec<u64>>,
    /// The six counts of the pipeline; empty: not known.
    pub counts: Vec<u64>,
}

/// The names of all targets.
#[derive(Debug)]
pub struct TargetNames {
    /// Hash and ordinal of each, sorted.
    lines: Vec<(u64, u64)>,
}

impl TargetNames {
    /// Reads the names in `path`.
    ///
    /// # Errors
    /// [`Error::Data`] if the file is not understood.
    pub fn read(path: &Path, is_pressed: bool) -> Result<Self, Error> {
        let mut lines = Vec::new();
        let each = |name: &[u8]| lines.push((hash(name), lines.len() as u64));
        if is_pressed {
            profiles::read_names(path, each)?
        } else {
            sequences::read_names(path, each)?
        }
        lines.sort_unstable();
        Ok(Self { lines })
    }

    /// The only target with this name.
    fn find(&self, name: &[u8]) -> Option<u64> {
        let wanted = hash(name);
        let at = self.lines.partition_point(|line| line.0 < wanted);
        match self.lines.get(at..)? {
            [first, second, ..] if second.0 == first.0 => None,
            [first, ..] if first.0 == wanted => Some(first.1),
            _ => None,
        }
    }

    /// What each query has found, by a report or by what is known from earlier searches.
    ///
    /// # Errors
    /// [`Error::Data`] if `text` is not understood.
    pub fn find_queries(&self, text: &[u8]) -> Result<Vec<QueryTargets>, Error> {
        let queries = Report::parse(text)?.queries;
        let found = queries.into_iter().map(|query| {
            let named: Option<Vec<u64>> = query.names.iter().map(|name| self.find(name)).collect();
            let ordinals = named.map(|named| {
                let mut all = [named, query.ordinals].concat();
                all.sort_unstable();
                all
            });
            QueryTargets { ordinals, counts: query.counts.map(|counts| counts.numbers()).unwrap_or_default() }
        });
        Ok(found.collect())
    }
}
