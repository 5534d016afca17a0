//! Text in columns: lines with as many fields each, between separators of one byte.

use memchr::{memchr, memchr_iter};

use super::words::Words;
use super::{Column, NO_LOG, TOO_LONG, TraceError, word_of};

/// Most digits of a number before its point, and most decimals.
const MAX_DIGITS: usize = 18;
const MAX_DECIMALS: usize = 9;

/// A number as its digits, and its decimals; None: it is written in a way that would not be restored.
fn parse_number(field: &[u8]) -> Option<(i64, u32)> {
    let (is_negative, digits) = field.strip_prefix(b"-").map_or((false, field), |digits| (true, digits));
    let (whole, decimals) = memchr(b'.', digits).map_or((digits, &[][..]), |at| (&digits[..at], &digits[at + 1..]));
    let has_point = whole.len() < digits.len();
    let is_plain = (1..=MAX_DIGITS).contains(&whole.len()) && (whole.len() == 1 || whole[0] != b'0');
    if !is_plain || decimals.len() > MAX_DECIMALS || has_point && decimals.is_empty() {
        return None;
    }
    let mut number: i64 = 0;
    for digit in whole.iter().chain(decimals) {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
    }
    if is_negative && number == 0 {
        return None;
    }
    Some((if is_negative { -number } else { number }, decimals.len() as u32))
}

/// What a column is, as far as it was read.
enum Kind {
    Numbers { decimals: u32 },
    Words,
}

/// The fields of a line.
fn fields(line: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut begin = 0;
    memchr_iter(separator, line).chain([line.len()]).map(move |end| {
        let field = &line[begin..end];
        begin = end + 1;
        field
    })
}

/// The lines of a block, without their ends. The last one may have none.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = block.strip_suffix(b"\n").unwrap_or(block);
    let mut begin = 0;
    memchr_iter(b'\n', whole).chain([whole.len()]).map(move |end| {
        let line = &whole[begin..end];
        begin = end + 1;
        line
    })
}

/// The columns of a block of lines, each with `n_fields` fields.
///
/// # Errors
/// Lines have another number of fields.
///
/// # Examples
///
/// ```
/// let columns = millrace_core::trace::parse_text(b"0.5,a\n1.0,b\n1.5,a\n", b',', 2)?;
/// assert_eq!((columns[0].values.as_slice(), columns[0].decimals), (&[5, 10, 15][..], 1));
/// assert_eq!(columns[1].values, [0, 1, 0]);
/// # Ok::<(), millrace_core::trace::TraceError>(())
/// ```
pub fn parse_text(block: &[u8], separator: u8, n_fields: usize) -> Result<Vec<Column>, TraceError> {
    const UNEVEN: TraceError = TraceError("its lines do not all have the same columns");
    let mut columns = vec![Column::default(); n_fields];
    let mut kinds: Vec<Option<Kind>> = (0..n_fields).map(|_| None).collect();
    for line in lines(block) {
        let mut n = 0;
        for field in fields(line, separator) {
            let (Some(column), Some(kind)) = (columns.get_mut(n), kinds.get_mut(n)) else { return Err(UNEVEN) };
            n += 1;
            if matches!(kind, Some(Kind::Words)) {
                continue;
            }
            match (parse_number(field), &kind) {
                (Some((number, decimals)), None) => {
                    *kind = Some(Kind::Numbers { decimals });
                    column.values.push(number);
                }
                (Some((number, decimals)), Some(Kind::Numbers { decimals: before })) if decimals == *before => {
                    column.values.push(number);
                }
                _ => *kind = Some(Kind::Words),
            }
        }
        if n != n_fields {
            return Err(UNEVEN);
        }
    }
    let mut words: Vec<Option<Words<'_>>> =
        kinds.iter().map(|kind| matches!(kind, Some(Kind::Words)).then(Words::default)).collect();
    if words.iter().any(Option::is_some) {
        for (column, _) in columns.iter_mut().zip(&words).filter(|(_, words)| words.is_some()) {
            column.values.clear();
        }
        for line in lines(block) {
            for ((field, column), words) in fields(line, separator).zip(&mut columns).zip(&mut words) {
                if let Some(words) = words {
                    column.values.push(words.number(field));
                }
            }
        }
    }
    for ((column, kind), words) in columns.iter_mut().zip(kinds).zip(words) {
        column.decimals = if let Some(Kind::Numbers { decimals }) = kind { decimals } else { 0 };
        column.words = words.map(Words::into_words);
    }
    Ok(columns)
}

/// The lines of columns; `has_end`: the last one ends, too.
///
/// # Errors
/// They are not those of a log, or the lines have more than `most` bytes.
pub fn format_text(columns: &[Column], separator: &[u8], has_end: bool, most: usize) -> Result<Vec<u8>, TraceError> {
    let n_rows = columns.first().ok_or(NO_LOG)?.values.len();
    if columns.iter().any(|column| column.values.len() != n_rows || column.decimals as usize > MAX_DECIMALS) {
        return Err(NO_LOG);
    }
    let mut text = Vec::new();
    for row in 0..n_rows {
        if row > 0 {
            text.push(b'\n');
        }
        for (at, column) in columns.iter().enumerate() {
            if at > 0 {
                text.extend_from_slice(separator);
            }
            let value = column.values[row];
            match &column.words {
                Some(words) => text.extend_from_slice(word_of(words, value)?),
                None => push_number(&mut text, value, column.decimals as usize),
            }
        }
        if text.len() > most {
            return Err(TOO_LONG);
        }
    }
    if has_end {
        text.push(b'\n');
    }
    Ok(text)
}

fn push_number(text: &mut Vec<u8>, value: i64, decimals: usize) {
    let (mut digits, mut at, mut rest) = ([0_u8; 32], 32, value.unsigned_abs());
    while rest > 0 || 32 - at <= decimals {
        if decimals > 0 && 32 - at == decimals {
            at -= 1;
            digits[at] = b'.';
            push_whole(&mut digits, &mut at, rest);
            break;
        }
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if value < 0 {
        text.push(b'-');
    }
    text.extend_from_slice(&digits[at..]);
}

/// Puts the digits of a number before `at`, at least one.
fn push_whole(digits: &mut [u8; 32], at: &mut usize, mut rest: u64) {
    loop {
        *at -= 1;
        digits[*at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_that_would_not_be_restored_are_words() {
        let parsed = |field: &str| parse_number(field.as_bytes());
        assert_eq!([parsed("0"), parsed("-1"), parsed("10.50")], [Some((0, 0)), Some((-1, 0)), Some((1050, 2))]);
        for field in ["", "-", "-0", "-0.0", "01", "1.", ".5", "+1", "1e3", " 1", "1234567890123456789", "0.1234567890"]
        {
            assert_eq!(parsed(field), None, "{field}");
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_restored(
            rows in prop::collection::vec((any::<i32>(), 0_u8..4, "[a-c.0-9-]{0,3}"), 1..50),
            has_end in any::<bool>(),
        ) {
            let lines = rows.iter().map(|(number, word, more)| format!("{number};{}.{:02};{more};w{word}", word, number.unsigned_abs() % 100));
            let mut block = lines.collect::<Vec<_>>().join("\n");
            block.push_str(if has_end { "\n" } else { "" });
            let columns = parse_text(block.as_bytes(), b';', 4).unwrap();
            prop_assert!(columns[0].words.is_none() && columns[1].words.is_none() && columns[3].words.is_some());
            let restored = format_text(&columns, b";", has_end, block.len() + 1).unwrap();
            prop_assert_eq!(String::from_utf8(restored).unwrap(), block);
        }
    }

    #[test]
    fn uneven_lines_and_wrong_columns_are_errors() {
        assert!(parse_text(b"1,2\n3\n", b',', 2).is_err());
        assert!(parse_text(b"1,2\n3,4,5\n", b',', 2).is_err());
        let word = Column { values: vec![1], decimals: 0, words: Some(vec![b"a".to_vec()]) };
        assert_eq!(format_text(&[word], b",", true, 100), Err(NO_LOG));
        assert_eq!(format_text(&[], b",", true, 100), Err(NO_LOG));
        let many = Column { values: vec![1; 100], ..Column::default() };
        assert_eq!(format_text(&[many], b",", true, 50), Err(TOO_LONG));
    }
}
