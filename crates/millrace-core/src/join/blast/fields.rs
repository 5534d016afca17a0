//! The `Query_N` that BLAST writes for the N-th record of its input.

use std::io::{self, Write};

use crate::join::lines::parse_count;

const NAME: &[u8] = b"Query_";

/// The number in `Query_N`, if `text` is nothing else and BLAST could have written it.
pub(super) fn query_number(text: &[u8]) -> Option<u64> {
    parse_count(text.strip_prefix(NAME)?)
}

pub(super) fn write_query(out: &mut impl Write, number: u64) -> io::Result<()> {
    write!(out, "Query_{number}")
}

/// Name and title are said in full up to this length...
const LONGEST_PREFIX: usize = 35;

/// ...and are else cut to this one, with `.. ` behind.
const CUT_PREFIX: usize = 25;

/// Runs on the number in a message about query `local` (`Query_3 title:  Query_3 title: Sequence contains no data`).
///
/// BLAST puts `Query_N`, the title and a colon before what it has to say, once more before each warning that it took
/// over, and shortens both to a fixed length. Returns `None` if a number stands where that does not explain it.
pub(super) fn shift_message(text: &[u8], local: u64, by: u64) -> Option<Vec<u8>> {
    let name = format!("Query_{local}");
    let mut rest = text;
    let mut shifted = Vec::with_capacity(text.len() + 16);
    if let Some(prefix) = prefix_of(text, name.as_bytes()) {
        let new = shift_prefix(prefix, name.len(), local + by)?;
        while let Some(after) = rest.strip_prefix(prefix) {
            shifted.extend_from_slice(&new);
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
    let next = text.strip_prefix(name)?.first()?;
    if !matches!(next, b' ' | b':') {
        return None;
    }
    // A title may hold ": " itself; the prefix is said twice, which tells where it ends.
    let mut first = None;
    for end in memchr::memmem::find_iter(text, b": ").map(|at| at + 2) {
        first.get_or_insert(end);
        let repeated = text[end..].strip_prefix(b" ").unwrap_or(&text[end..]);
        if repeated.starts_with(&text[..end]) {
            return Some(&text[..end]);
        }
    }
    first.map(|end| &text[..end])
}

/// `prefix` with another number, shortened as BLAST does it. `None` if it holds what cannot be counted in bytes here.
fn shift_prefix(prefix: &[u8], name_length: usize, number: u64) -> Option<Vec<u8>> {
    let said = prefix.strip_suffix(b": ")?;
    let cut = units(said).count() == CUT_PREFIX + 3 && said.ends_with(b".. ");
    let title = if cut { &said[name_length..said.len() - 3] } else { &said[name_length..] };
    let mut new = format!("Query_{number}").into_bytes();
    let whole = new.len() + units(title).count();
    if cut || whole > LONGEST_PREFIX {
        // A letter outside of ASCII is two or more bytes in the title and may be one here.
        if !title.is_ascii() {
            return None;
        }
        let room = CUT_PREFIX.checked_sub(new.len())?;
        units(title).take(room).for_each(|unit| new.extend_from_slice(unit));
        new.extend_from_slice(b".. ");
    } else {
        new.extend_from_slice(title);
    }
    new.extend_from_slice(b": ");
    Some(new)
}

/// The letters of a text in which XML or JSON may have written one letter as several bytes.
fn units(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let length = match rest {
            [] => return None,
            [b'&', ..] => memchr::memchr(b';', &rest[..rest.len().min(8)]).map_or(1, |at| at + 1),
            [b'\\', b'u', ..] => rest.len().min(6),
            [b'\\', _, ..] => 2,
            _ => 1,
        };
        let (unit, after) = rest.split_at(length);
        rest = after;
        Some(unit)
    })
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
    fn shortened_message_is_shortened_anew() {
        let message = |name: &str| format!("{name}:  {name}: Sequence contains no data").into_bytes();
        let shifted = |from: &str, by| String::from_utf8(shift_message(&message(from), 2, by).unwrap()).unwrap();
        assert_eq!(shifted("Query_2 tr|A0A0S2ES34|A0A.. ", 9).as_bytes(), message("Query_11 tr|A0A0S2ES34|A0.. "));
        // 35 letters are said in full, 36 are cut to 25; an entity is one letter.
        let longest = "Query_2 abcdefghijklm&lt;opqrstuvwxyzA";
        assert_eq!(shifted(longest, 7).as_bytes(), message("Query_9 abcdefghijklm&lt;opqrstuvwxyzA"));
        assert_eq!(shifted(longest, 8).as_bytes(), message("Query_10 abcdefghijklm&lt;op.. "));
    }

    #[test]
    fn message_with_a_number_elsewhere_is_refused() {
        assert_eq!(shift_message(b"Query_2 x: see Query_3", 2, 10), None);
    }
}
