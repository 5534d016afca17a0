//! Footers with totals: what each batch has counted is added up.

use std::ops::Range;

use regex::bytes::Regex;

use super::JoinError;
use super::lines::{shape, text};

/// Adds up the numbers in footers.
pub(super) struct Totals {
    /// Its groups are the numbers of a line.
    regex: Regex,
    /// Of each number: where it stands in the footer without numbers, and the total so far.
    sums: Option<Vec<(usize, u64)>>,
    /// The totals of batches that another joiner has joined.
    before: Vec<u64>,
    /// Those of the last footer.
    last: Vec<(usize, u64)>,
}

/// The number there, if its total is written in the same way: a whole one, with no zeros or blanks in front that fill it up.
fn number(line: &[u8], place: &Range<usize>) -> Option<u64> {
    let (before, rest) = line.split_at(place.start);
    let (digits, after) = rest.split_at(place.len());
    let is_part = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_digit() || b".,-+".contains(byte));
    let is_filled = digits.len() > 1 && digits.starts_with(b"0") || before.ends_with(b"  ") || after.starts_with(b"  ");
    let goes_on = match after {
        [b'.' | b',', next, ..] => next.is_ascii_digit(),
        _ => after.first().is_some_and(u8::is_ascii_digit),
    };
    if is_filled || goes_on || is_part(before.last()) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Totals {
    /// `None` if nothing in `regex` is a group.
    pub(super) fn new(regex: Regex) -> Option<Self> {
        (regex.captures_len() > 1).then_some(Self { regex, sums: None, before: vec![], last: vec![] })
    }

    /// Adds the numbers of a footer, and returns it without them.
    pub(super) fn take(&mut self, footer: &[u8], format: &'static str) -> Result<Vec<u8>, JoinError> {
        let mut rest = Vec::with_capacity(footer.len());
        let mut numbers = Vec::new();
        for line in footer.split_inclusive(|byte| *byte == b'\n') {
            let mut done = 0;
            let groups = self.regex.captures(text(line));
            for group in groups.iter().flat_map(|found| found.iter().skip(1)) {
                let Some(group) = group else {
                    return Err(shape(format, "a number to add up is missing in a footer"));
                };
                let number = number(line, &group.range()).filter(|_| group.start() >= done);
                let Some(number) = number else {
                    let found = String::from_utf8_lossy(group.as_bytes());
                    return Err(shape(format, format!("'{found}' is no number to add up")));
                };
                rest.extend_from_slice(&line[done..group.start()]);
                numbers.push((rest.len(), number));
                done = group.end();
            }
            rest.extend_from_slice(&line[done..]);
        }
        self.last.clone_from(&numbers);
        self.add(numbers, format)?;
        Ok(rest)
    }

    /// Goes on from the totals of other batches.
    pub(super) fn resume(&mut self, totals: &[u64]) {
        self.before = totals.to_vec();
    }

    /// The numbers of the last footer.
    pub(super) fn counts(&self) -> Vec<u64> {
        self.last.iter().map(|(_, number)| *number).collect()
    }

    /// What footers must have in common: `footer`, which has no numbers, and where they stand.
    pub(super) fn common(&self, footer: &[u8]) -> Vec<u8> {
        let places = self.last.iter().flat_map(|(at, _)| (*at as u64).to_le_bytes());
        footer.iter().copied().chain(places).collect()
    }

    fn add(&mut self, numbers: Vec<(usize, u64)>, format: &'static str) -> Result<(), JoinError> {
        let Some(sums) = &mut self.sums else {
            let before = self.before.iter().copied().chain(std::iter::repeat(0));
            let sums =
                numbers.into_iter().zip(before).map(|((at, number), before)| Some((at, before.checked_add(number)?)));
            let sums = sums.collect::<Option<_>>();
            self.sums =
                Some(sums.ok_or_else(|| shape(format, "the numbers in the footers of batches cannot be added up"))?);
            return Ok(());
        };
        if sums.len() != numbers.len() {
            let (first, other) = (sums.len(), numbers.len());
            return Err(shape(format, format!("the footers of batches have {first} and {other} numbers")));
        }
        for ((at, sum), (other, number)) in sums.iter_mut().zip(numbers) {
            let added = sum.checked_add(number).filter(|_| *at == other);
            *sum = added.ok_or_else(|| shape(format, "the numbers in the footers of batches cannot be added up"))?;
        }
        Ok(())
    }

    /// `footer` with the totals.
    pub(super) fn put(&self, footer: &[u8]) -> Vec<u8> {
        let mut whole = Vec::with_capacity(footer.len());
        let mut done = 0;
        for (at, sum) in self.sums.iter().flatten() {
            whole.extend_from_slice(&footer[done..*at]);
            whole.extend_from_slice(sum.to_string().as_bytes());
            done = *at;
        }
        whole.extend_from_slice(&footer[done..]);
        whole
    }
}
