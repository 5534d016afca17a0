//! Entries of a database by the digests of their sequences: which of them an earlier database had, too.

/// Bytes of one digest.
const DIGEST: usize = 16;

/// What an earlier database did not have.
const NEW: u32 = u32::MAX;

/// Sorts digests, each of them once.
///
/// # Errors
/// The bytes are no whole number of digests.
pub fn sort(digests: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut all = split(digests)?;
    all.sort_unstable();
    all.dedup();
    Ok(all.concat())
}

/// The entries of a database beside the sorted digests of an earlier one.
#[derive(Debug)]
pub struct KnownEntries {
    /// Number among the sorted digests of each entry, or `NEW`.
    numbers: Vec<u32>,
    /// Entries of each number, one number after the other, and where those of a number begin.
    entries: Vec<u32>,
    begins: Vec<u32>,
}

impl KnownEntries {
    /// Compares the digests of all entries, in their order, with those of `sort`.
    ///
    /// # Errors
    /// The bytes are no whole number of digests, or are not sorted, or are 2³² digests or more.
    pub fn new(sorted: &[u8], digests: &[u8]) -> Result<Self, &'static str> {
        let (known, here) = (split(sorted)?, split(digests)?);
        if !known.is_sorted_by(|a, b| a < b) {
            return Err("digests that are not sorted");
        }
        if known.len() >= NEW as usize || here.len() >= NEW as usize {
            return Err("too many entries");
        }
        let numbers: Vec<u32> =
            here.iter().map(|digest| known.binary_search(digest).map_or(NEW, |at| at as u32)).collect();
        let mut begins = vec![0; known.len() + 1];
        for &number in numbers.iter().filter(|&&number| number != NEW) {
            begins[number as usize + 1] += 1;
        }
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let (mut next, mut entries) = (begins.clone(), vec![0; *begins.last().unwrap_or(&0) as usize]);
        for (entry, &number) in (0..).zip(&numbers).filter(|&(_, &number)| number != NEW) {
            entries[next[number as usize] as usize] = entry;
            next[number as usize] += 1;
        }
        Ok(Self { numbers, entries, begins })
    }

    /// Ranges `[first, last)` of the entries that the earlier database did not have.
    #[must_use]
    pub fn new_ranges(&self) -> Vec<(u64, u64)> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (entry, _) in (0..).zip(&self.numbers).filter(|&(_, &number)| number == NEW) {
            match ranges.last_mut() {
                Some((_, last)) if *last == entry => *last += 1,
                _ => ranges.push((entry, entry + 1)),
            }
        }
        ranges
    }

    /// Ordinals, ascending, of the entries with these numbers; nothing if there is no such number.
    #[must_use]
    pub fn ordinals(&self, numbers: &[u32]) -> Option<Vec<u64>> {
        let mut found = Vec::new();
        for &number in numbers {
            let begin = *self.begins.get(number as usize)? as usize;
            let end = *self.begins.get(number as usize + 1)? as usize;
            found.extend(self.entries[begin..end].iter().map(|&entry| u64::from(entry)));
        }
        found.sort_unstable();
        Some(found)
    }

    /// Numbers, ascending and each once, of these entries; nothing if one is new, or is not there.
    #[must_use]
    pub fn numbers(&self, ordinals: &[u64]) -> Option<Vec<u32>> {
        let found = ordinals.iter().map(|&entry| self.numbers.get(usize::try_from(entry).ok()?).copied());
        let mut found = found.collect::<Option<Vec<u32>>>()?;
        found.sort_unstable();
        found.dedup();
        (found.last() != Some(&NEW)).then_some(found)
    }
}

fn split(digests: &[u8]) -> Result<Vec<[u8; DIGEST]>, &'static str> {
    let all = digests.chunks_exact(DIGEST);
    if !all.remainder().is_empty() {
        return Err("no whole number of digests");
    }
    Ok(all.filter_map(|digest| digest.try_into().ok()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digests(names: &[u8]) -> Vec<u8> {
        names.iter().flat_map(|&name| [name; DIGEST]).collect()
    }

    proptest! {
        #[test]
        fn an_entry_is_found_where_its_digest_was(old in prop::collection::vec(0_u8..9, 0..20), new in prop::collection::vec(0_u8..9, 0..20)) {
            let sorted = sort(&digests(&old)).unwrap();
            let known = KnownEntries::new(&sorted, &digests(&new)).unwrap();
            let mut fresh: Vec<u64> = known.new_ranges().into_iter().flat_map(|(first, last)| first..last).collect();
            prop_assert!(fresh.iter().all(|&entry| !old.contains(&new[entry as usize])));
            for number in 0..sorted.len() / DIGEST {
                let name = sorted[number * DIGEST];
                let entries = known.ordinals(&[number as u32]).unwrap();
                prop_assert!(entries.iter().all(|&entry| new[entry as usize] == name));
                if !entries.is_empty() {
                    prop_assert_eq!(known.numbers(&entries), Some(vec![number as u32]));
                }
                fresh.extend(entries);
            }
            fresh.sort_unstable();
            prop_assert!(fresh.into_iter().eq(0..new.len() as u64), "each entry is new or known, and once");
        }
    }

    #[test]
    fn what_is_not_sorted_or_not_there_is_refused() {
        assert!(KnownEntries::new(&digests(&[2, 1]), &[]).is_err());
        assert!(KnownEntries::new(&[0; 3], &[]).is_err());
        let known = KnownEntries::new(&digests(&[1, 2]), &digests(&[2, 3])).unwrap();
        assert_eq!(known.ordinals(&[2]), None);
        assert_eq!((known.numbers(&[0]), known.numbers(&[1]), known.numbers(&[2])), (Some(vec![1]), None, None));
    }
}
