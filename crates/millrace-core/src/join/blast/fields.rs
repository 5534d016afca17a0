//! The `Query_N` that BLAST writes for the N-th record of its input.

use std::io::{self, Write};

const NAME: &[u8] = b"Query_";

/// The number in `Query_N`, if `text` is nothing else and BLAST could have written it.
pub(super) fn query_number(text: &[u8]) -> Option<u64> {
    number(text.strip_prefix(NAME)?)
}

/// A count as BLAST writes it: no sign, no leading zero.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 18 || digits[0] == b'0' || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(digits.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

pub(super) fn write_query(out: &mut impl Write, number: u64) -> io::Result<()> {
    write!(out, "Query_{number}")
}

/// Runs on the number in a message about query `local` (`Query_3 title: Query_3 title: Sequence contains no data`).
///
/// BLAST puts `Query_N`, the shortened title and a colon before what it has to say, and once more before each warning
/// that it took over. Returns `None` if the number stands where that does not explain it.
pub(super) fn shift_message(text: &[u8], local: u64, by: u64) -> Option<Vec<u8>> {
    let name = format!("Query_{local}").into_bytes();
    let mut rest = text;
    let mut shifted = Vec::with_capacity(text.len() + 16);
    if let Some(prefix) = prefix_of(text, &name) {
        while let Some(after) = rest.strip_prefix(prefix) {
            write!(shifted, "Query_{}", local + by).ok()?;
            shifted.extend_from_slice(&prefix[name.len()..]);
            rest = after;
            // Between one prefix and the next stands one more space.
            if rest.strip_prefix(b" ").is_some_and(|next| next.starts_with(prefix)) {
                shifted.push(b' ');
                rest = &rest[1..];
            }
        }
    }
    if memchr::memmem::find(rest, NAME).is_some() {
        return None;
    }
    shifted.extend_from_slice(rest);
    Some(shifted)
}

/// `Query_N title: `, or nothing if the message has no such beginning.
fn prefix_of<'t>(text: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    if !text.starts_with(name) || text.get(name.len()) != Some(&b' ') {
        return None;
    }
    // A title may hold ": " itself; the prefix is said twice, which tells where it ends.
    let ends = memchr::memmem::find_iter(text, b": ").map(|at| at + 2);
    let mut first = None;
    for end in ends {
        first.get_or_insert(end);
        let repeated = text[end..].strip_prefix(b" ").unwrap_or(&text[end..]);
        if repeated.starts_with(&text[..end]) {
            return Some(&text[..end]);
        }
    }
    first.map(|end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_blast_writes_is_a_number() {
        assert_eq!(query_number(b"Query_12"), Some(12));
        for other in [&b"Query_"[..], b"Query_012", b"Query_1x", b"query_1", b"Query_-1", b"Query_1 "] {
            assert_eq!(query_number(other), None);
        }
    }

    #[test]
    fn message_is_shifted_where_blast_wrote_the_number() {
        let shifted = shift_message(b"Query_2 x:  Query_2 x: No data  No hits found", 2, 10).unwrap();
        assert_eq!(shifted, b"Query_12 x:  Query_12 x: No data  No hits found");
        let titled = shift_message(b"Query_2 Query_2 a: b:  Query_2 Query_2 a: b: No data", 2, 10).unwrap();
        assert_eq!(titled, b"Query_12 Query_2 a: b:  Query_12 Query_2 a: b: No data");
        assert_eq!(shift_message(b"No hits found", 2, 10).unwrap(), b"No hits found");
    }

    #[test]
    fn message_with_a_number_elsewhere_is_refused() {
        assert_eq!(shift_message(b"Query_2 x: see Query_3", 2, 10), None);
    }
}
