//! One query with very many subjects: which of them go together, so that rows of tables can be written side by side.
//!
//! BLAST writes subjects by E-value, then score; where E-values follow from scores alone, the subjects of a higher
//! score come first. So subjects are cut into *slices* by the bits that are printed of them, which are never fewer
//! for a higher score, and what is written of one slice after the other is what is written of all. All of the same
//! bits are in one slice, in which BLAST itself orders them.
//! Whether a slice is what it was taken for can be told from its rows ([`Within`]).

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use super::{Line, Lines};

/// Reads the lists of hits of one query, in pieces of any size, and keeps how many subjects have which bits.
#[derive(Debug, Default)]
pub struct Ranking {
    lines: Lines,
    /// Of the present list.
    queries: u64,
    subjects: u64,
    /// Subjects whose bits are no number.
    unknown: u64,
    /// Subjects by their bits, as a number of the same order (they are not negative).
    counts: BTreeMap<u64, u64>,
}

impl Ranking {
    /// Reads the next piece.
    pub fn read(&mut self, piece: &[u8]) {
        let mut lines = std::mem::take(&mut self.lines);
        lines.read(piece, |line| self.take(&line));
        self.lines = lines;
    }

    /// Reads what is left of one list; another may follow. Returns the number of its subjects, or nothing if it is not
    /// the list of one query, or not understood.
    pub fn finish(&mut self) -> Option<u64> {
        self.read(b"\n");
        let (queries, subjects) = (std::mem::take(&mut self.queries), std::mem::take(&mut self.subjects));
        (queries <= 1 && self.unknown == 0).then_some(subjects)
    }

    fn take(&mut self, line: &Line<'_>) {
        let Line::Subject { bits, .. } = line else {
            self.queries += 1;
            return;
        };
        self.subjects += 1;
        match decimal(bits).filter(|&bits| bits >= 0.0) {
            Some(bits) => *self.counts.entry(bits.to_bits()).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// Fewest and most bits of the subjects of slice `index` of `n`, from 0, those with the most bits first.
    ///
    /// Slices depend on what was read alone, and are of about equal work; some may be empty.
    #[must_use]
    pub fn slice(&self, index: u64, n: u64) -> Option<(f64, f64)> {
        let all: u64 = self.counts.iter().map(work).sum();
        let (mut done, mut range) = (0, None);
        for equals in self.counts.iter().rev() {
            let bits = f64::from_bits(*equals.0);
            if u128::from(done) * u128::from(n) / u128::from(all) == u128::from(index) {
                range = Some((bits, range.map_or(bits, |(_, most)| most)));
            }
            done += work(equals);
        }
        range
    }
}

/// What subjects of the same bits cost, by measurement: most of it is the same for all, the rest is that of alignments.
fn work((bits, subjects): (&u64, &u64)) -> u64 {
    subjects * (f64::from_bits(*bits).min(1e6) as u64 + 4000)
}

pub(super) fn decimal(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    number.is_finite().then_some(number)
}

/// Where the rows of a slice must be: each subject in its turn has its best alignment first.
#[derive(Debug, Clone, Copy)]
pub struct Within {
    /// Column of a name of the subject, from 0.
    pub subject: usize,
    /// Column of the bits.
    pub bits: usize,
    /// Fewest bits of the best alignment of a subject.
    pub lowest: f64,
    /// Most bits of any alignment; below `lowest`: no rows at all are right, not even none.
    pub highest: f64,
}

impl Within {
    /// Whether `rows`, with columns between tabs, are those of the slice.
    ///
    /// # Errors
    /// What reading fails with.
    pub fn holds(&self, rows: &mut dyn BufRead) -> io::Result<bool> {
        if self.lowest > self.highest {
            return Ok(false);
        }
        let (mut line, mut before) = (Vec::new(), Vec::new());
        let mut first = true;
        while rows.read_until(b'\n', &mut line)? > 0 {
            let columns = || line.split(|&byte| byte == b'\t' || byte == b'\n');
            let (Some(subject), Some(bits)) = (columns().nth(self.subject), columns().nth(self.bits)) else {
                return Ok(false);
            };
            let Some(bits) = decimal(bits).filter(|&bits| bits <= self.highest) else { return Ok(false) };
            if first || subject != before {
                if bits < self.lowest {
                    return Ok(false);
                }
                before.clear();
                before.extend_from_slice(subject);
                first = false;
            }
            line.clear();
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(bits: &[u16]) -> String {
        let lines = bits
            .iter()
            .enumerate()
            .map(|(k, &bits)| format!("s{k}   <a href=#BL_ORD_ID:{k}>{:.1}</a>    1e-9\n", f64::from(bits) / 10.0));
        format!("<b>Query=</b> q\n{}", lines.collect::<String>())
    }

    proptest! {
        #[test]
        fn slices_are_all_subjects_in_the_order_of_their_bits(
            bits in prop::collection::vec(200_u16..260, 1..60), n in 1_u64..9, piece in 1_usize..80,
        ) {
            let mut ranking = Ranking::default();
            for part in list(&bits).as_bytes().chunks(piece) {
                ranking.read(part);
            }
            prop_assert_eq!(ranking.finish(), Some(bits.len() as u64));
            let (mut above, mut taken) = (f64::INFINITY, 0);
            for (lowest, highest) in (0..n).filter_map(|index| ranking.slice(index, n)) {
                prop_assert!(lowest <= highest && highest < above);
                above = lowest;
                let within = bits.iter().map(|&bits| f64::from(bits) / 10.0).filter(|&bits| lowest <= bits && bits <= highest);
                taken += within.count();
            }
            prop_assert_eq!(taken, bits.len());
        }
    }

    #[test]
    fn a_list_of_several_queries_or_without_bits_is_not_ranked() {
        let mut ranking = Ranking::default();
        ranking.read(list(&[300]).as_bytes());
        ranking.read(list(&[300]).as_bytes());
        assert_eq!(ranking.finish(), None);
        let mut ranking = Ranking::default();
        ranking.read(b"s <a href=#BL_ORD_ID:1>many</a>  1\n");
        assert_eq!(ranking.finish(), None);
    }

    fn holds(rows: &str) -> bool {
        Within { subject: 1, bits: 3, lowest: 30.0, highest: 40.0 }.holds(&mut rows.as_bytes()).unwrap()
    }

    #[test]
    fn rows_are_those_of_the_slice_if_the_best_of_each_subject_is() {
        assert!(holds(""));
        assert!(holds("q\ta\t1\t40.0\nq\ta\t1\t12\nq\tb\t1\t30.0\n"));
        assert!(!holds("q\ta\t1\t40.1\n"), "too high");
        assert!(!holds("q\ta\t1\t40\nq\tb\t1\t29.9\n"), "too low");
        assert!(!holds("q\ta\t1\t30\nq\ta\t1\t41\n"), "not the best first");
        assert!(!holds("q\ta\t40\n"), "no such column");
        assert!(!holds("q\ta\t1\tN/A\n"), "no number");
        let never = Within { subject: 0, bits: 1, lowest: 1.0, highest: 0.0 };
        assert!(!never.holds(&mut &b""[..]).unwrap());
    }
}
