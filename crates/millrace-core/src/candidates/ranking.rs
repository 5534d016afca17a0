//! One query with very many subjects: which of them go together, so that rows of tables can be written side by side.
//!
//! BLAST writes subjects by E-value, then score, and takes all E-values below 1e-180, which it prints as 0.0, for equal.
//! Subjects are cut into *slices* by what is printed of them, their *rank*: the E-value, and the bits of those without
//! one. A number that is printed never says less than that of one behind it, so what is written of one slice after the
//! other is what is written of all. All of the same rank are in one slice, in which BLAST itself orders them. Where
//! E-values follow from scores alone, bits are the rank of all.
//! Whether a slice is what it was taken for can be told from its rows ([`Within`]).
//!
//! Source: `s_EvalueCompareHSPLists` and `s_EvalueComp` (`blast_hits.c`) of the NCBI C++ Toolkit.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use super::{Line, Lines};

/// By what subjects are ranked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum By {
    /// Bits alone.
    #[default]
    Bits,
    /// E-value, and bits where that is 0.0.
    Evalue,
}

impl By {
    /// The rank of a subject of which this is printed, higher for those in front; nothing if that is no number.
    pub(super) fn rank(self, bits: &[u8], evalue: &[u8]) -> Option<f64> {
        let positive = |text| decimal(text).filter(|&number| number >= 0.0);
        match self {
            Self::Bits => positive(bits),
            Self::Evalue => match positive(evalue)? {
                0.0 => positive(bits),
                evalue => Some(-evalue),
            },
        }
    }
}

/// Reads the lists of hits of one query, in pieces of any size, and keeps how many subjects have which rank.
#[derive(Debug, Default)]
pub struct Ranking {
    by: By,
    lines: Lines,
    /// Of the present list.
    queries: u64,
    subjects: u64,
    /// Subjects that have no rank.
    unknown: u64,
    /// Subjects by their rank (see [`ordered`]).
    counts: BTreeMap<i64, u64>,
}

impl Ranking {
    /// Ranks by this.
    #[must_use]
    pub fn by(by: By) -> Self {
        Self { by, ..Self::default() }
    }

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
        let Line::Subject { bits, evalue, .. } = line else {
            self.queries += 1;
            return;
        };
        self.subjects += 1;
        match self.by.rank(bits, evalue) {
            Some(rank) => *self.counts.entry(ordered(rank)).or_default() += 1,
            None => self.unknown += 1,
        }
    }

    /// Lowest and highest rank of the subjects of slice `index` of `n`, from 0, the highest first.
    ///
    /// Slices depend on what was read alone, and are of about equal work; some may be empty.
    #[must_use]
    pub fn slice(&self, index: u64, n: u64) -> Option<(f64, f64)> {
        let all: u64 = self.counts.iter().map(work).sum();
        let (mut done, mut range) = (0, None);
        for equals in self.counts.iter().rev() {
            let rank = rank_of(*equals.0);
            if u128::from(done) * u128::from(n) / u128::from(all) == u128::from(index) {
                range = Some((rank, range.map_or(rank, |(_, highest)| highest)));
            }
            done += work(equals);
        }
        range
    }
}

/// What subjects of the same rank cost, by measurement: most of it is the same for all, the rest is that of alignments,
/// if bits tell of them.
fn work((&key, subjects): (&i64, &u64)) -> u64 {
    subjects * (rank_of(key).clamp(0.0, 1e6) as u64 + 4000)
}

/// A number as an integer of the same order, and back.
fn ordered(rank: f64) -> i64 {
    turned(rank.to_bits() as i64)
}

fn rank_of(key: i64) -> f64 {
    f64::from_bits(turned(key) as u64)
}

/// Negative numbers the other way round (as `f64::total_cmp`).
fn turned(bits: i64) -> i64 {
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn decimal(text: &[u8]) -> Option<f64> {
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
    /// Column of the E-value, where subjects are ranked by it.
    pub evalue: Option<usize>,
    /// Lowest rank of the best alignment of a subject.
    pub lowest: f64,
    /// Highest rank of any alignment; below `lowest`: no rows at all are right, not even none.
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
        let (lowest, highest) = (low(self.lowest), high(self.highest));
        let (mut line, mut before) = (Vec::new(), Vec::new());
        let mut first = true;
        while rows.read_until(b'\n', &mut line)? > 0 {
            let column = |n| line.split(|&byte| byte == b'\t' || byte == b'\n').nth(n);
            let rank = match (self.evalue, column(self.bits)) {
                (None, Some(bits)) => By::Bits.rank(bits, b""),
                (Some(evalue), Some(bits)) => column(evalue).and_then(|evalue| By::Evalue.rank(bits, evalue)),
                (_, None) => None,
            };
            let (Some(subject), Some(rank)) = (column(self.subject), rank) else { return Ok(false) };
            if rank > highest {
                return Ok(false);
            }
            if first || subject != before {
                if rank < lowest {
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

/// How much a table may round an E-value: it prints three digits.
const ROUNDED: f64 = 0.006;

/// The lowest rank that rows of a subject may show of which a list shows `rank`: it prints one digit of an E-value at least.
fn low(rank: f64) -> f64 {
    if rank < 0.0 { (rank - half_a_digit(rank)) * (1.0 + ROUNDED) } else { rank }
}

/// The highest one.
fn high(rank: f64) -> f64 {
    if rank < 0.0 { (rank + half_a_digit(rank)) * (1.0 - ROUNDED) } else { rank }
}

fn half_a_digit(rank: f64) -> f64 {
    // A little more than the logarithm, which may be rounded to below a whole number.
    10_f64.powf((rank.abs().log10() + 1e-9).floor()) / 2.0
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

        /// Subjects in the order of E-values, equal ones below 1e-180; two numbers of a slice as list and table print them.
        #[test]
        fn slices_by_evalue_are_all_subjects_in_their_order(
            mut found in prop::collection::vec((-190_f64..3.0, 1_u32..9999), 1..60), n in 1_u64..9,
        ) {
            let evalue = |exponent: f64| if exponent < -180.0 { 0.0 } else { 10_f64.powf(exponent) };
            found.sort_by(|a, b| evalue(a.0).total_cmp(&evalue(b.0)).then(b.1.cmp(&a.1)));
            let printed: Vec<_> = found.iter().map(|&(exponent, bits)| (listed(evalue(exponent)), bits)).collect();
            let text: String =
                printed.iter().map(|(evalue, bits)| format!("s <a href=#s>{bits}</a>    {evalue}  \n")).collect();
            let mut ranking = Ranking::by(By::Evalue);
            ranking.read(text.as_bytes());
            prop_assert_eq!(ranking.finish(), Some(found.len() as u64));
            let mut next = 0;
            for (lowest, highest) in (0..n).filter_map(|index| ranking.slice(index, n)) {
                let within = Within { subject: 0, bits: 1, evalue: Some(2), lowest, highest };
                while let Some((text, bits)) = printed.get(next) {
                    let rank = By::Evalue.rank(bits.to_string().as_bytes(), text.as_bytes()).unwrap();
                    if rank < lowest {
                        break;
                    }
                    prop_assert!(rank <= highest);
                    let row = format!("{next}\t{bits}\t{}\n", tabled(evalue(found[next].0)));
                    prop_assert!(within.holds(&mut row.as_bytes()).unwrap(), "{row} {within:?}");
                    next += 1;
                }
            }
            prop_assert_eq!(next, found.len());
        }
    }

    /// As `CAlignFormatUtil::GetScoreString` of the NCBI C++ Toolkit prints it in lists of hits, and in tables.
    fn listed(evalue: f64) -> String {
        match evalue {
            ..1e-180 => "0.0".to_owned(),
            ..0.0009 => format!("{evalue:.0e}"),
            ..0.1 => format!("{evalue:.3}"),
            ..1.0 => format!("{evalue:.2}"),
            ..10.0 => format!("{evalue:.1}"),
            _ => format!("{evalue:.0}"),
        }
    }

    fn tabled(evalue: f64) -> String {
        match evalue {
            ..1e-180 => "0.0".to_owned(),
            ..0.0009 => format!("{evalue:.2e}"),
            _ => listed(evalue),
        }
    }

    #[test]
    fn rows_are_not_those_of_a_slice_of_other_evalues() {
        let holds = |row: &str| {
            Within { subject: 0, bits: 1, evalue: Some(2), lowest: -2e-9, highest: -1e-11 }
                .holds(&mut row.as_bytes())
                .unwrap()
        };
        assert!(holds("a\t50\t1.23e-11\nb\t50\t2.49e-09\nb\t20\t3.0\n"));
        assert!(!holds("a\t50\t4.00e-12\n"), "too low");
        assert!(!holds("a\t50\t0.0\n"), "too low");
        assert!(!holds("a\t50\t2.60e-09\n"), "too high");
        assert!(!holds("a\t50\n"), "no such column");
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
        Within { subject: 1, bits: 3, evalue: None, lowest: 30.0, highest: 40.0 }.holds(&mut rows.as_bytes()).unwrap()
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
        let never = Within { subject: 0, bits: 1, evalue: None, lowest: 1.0, highest: 0.0 };
        assert!(!never.holds(&mut &b""[..]).unwrap());
    }
}
