//! Words by number, in the order in which they come first.

use std::collections::HashMap;

/// Numbers for words that stay where they are.
#[derive(Default)]
pub(super) struct Words<'a> {
    numbers: HashMap<&'a [u8], i64>,
    words: Vec<&'a [u8]>,
    last: Option<i64>,
}

impl<'a> Words<'a> {
    /// The number of a word.
    pub(super) fn number(&mut self, word: &'a [u8]) -> i64 {
        if let Some(last) = self.last
            && self.words.get(usize::try_from(last).unwrap_or_default()) == Some(&word)
        {
            return last;
        }
        let fresh = self.words.len() as i64;
        let number = *self.numbers.entry(word).or_insert(fresh);
        if number == fresh {
            self.words.push(word);
        }
        self.last = Some(number);
        number
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// All of them.
    pub(super) fn into_words(self) -> Vec<Vec<u8>> {
        self.words.into_iter().map(<[u8]>::to_vec).collect()
    }
}
