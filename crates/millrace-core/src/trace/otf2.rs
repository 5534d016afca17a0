//! Events of a location in the Open Trace Format 2: when, and the record without that.
//!
//! A file is a sequence of chunks of records: a byte for the kind, a byte for the length (255: it is in the next eight
//! bytes), and the data. A timestamp of eight bytes may precede a record; a chunk begins with 18 bytes and ends with one.
//! Source: OTF2 3.0, `OTF2_Buffer.c` and `OTF2_buffer.h`.

use super::words::Words;
use super::{Column, NO_LOG, TOO_LONG, TraceError, word_of};

const CHUNK_HEADER: u8 = 3;
const TIMESTAMP: u8 = 5;
const FIRST_WITH_LENGTH: u8 = 10;
const CHUNK_BYTES: usize = 18;
const TIME_BYTES: usize = 8;
const LONG: u8 = 255;

/// Bytes of one record at most; a file with longer ones is no trace.
const MAX_RECORD_BYTES: u64 = 1 << 16;

/// Different words at most; with more of them nothing recurs.
const MAX_WORDS: usize = 1 << 20;

const NOT_OTF2: TraceError = TraceError("its events are not as those of OTF2");

/// The time of the record that begins here, if there is one, and the end of the record; None: it is incomplete.
fn measure(block: &[u8], at: usize) -> Result<Option<(Option<u64>, usize)>, TraceError> {
    let number = |at: usize| Some(u64::from_le_bytes(block.get(at..at + TIME_BYTES)?.try_into().ok()?));
    let (mut begin, mut time) = (at, None);
    if block.get(at) == Some(&TIMESTAMP) {
        begin = at + 1 + TIME_BYTES;
        time = number(at + 1);
    }
    let Some(&kind) = block.get(begin) else { return Ok(None) };
    let end = match (kind, block.get(begin + 1)) {
        (CHUNK_HEADER, _) => begin + CHUNK_BYTES,
        (..FIRST_WITH_LENGTH, _) => begin + 1,
        (_, None) => return Ok(None),
        (_, Some(&LONG)) => {
            let Some(length) = number(begin + 2) else { return Ok(None) };
            if length > MAX_RECORD_BYTES {
                return Err(NOT_OTF2);
            }
            begin + 2 + TIME_BYTES + length as usize
        }
        (_, Some(&length)) => begin + 2 + usize::from(length),
    };
    Ok((end <= block.len()).then_some((time, end)))
}

/// The complete records of a block, as times and words, and how many bytes they are.
///
/// A word begins with the byte of a timestamp where the time stands in the file.
///
/// # Errors
/// There are none.
pub fn parse_otf2(block: &[u8]) -> Result<(Vec<Column>, usize), TraceError> {
    // Words without their times, one after the other: then each has a place that stays.
    let (mut bytes, mut ends, mut times) = (Vec::with_capacity(block.len()), vec![], vec![]);
    let (mut at, mut now) = (0, 0);
    while at < block.len()
        && let Some((time, end)) = measure(block, at)?
    {
        match time {
            Some(time) => {
                now = i64::try_from(time).map_err(|_| NOT_OTF2)?;
                bytes.push(TIMESTAMP);
                bytes.extend_from_slice(&block[at + 1 + TIME_BYTES..end]);
            }
            None => bytes.extend_from_slice(&block[at..end]),
        }
        times.push(now);
        ends.push(bytes.len());
        at = end;
    }
    let (mut words, mut values, mut begin) = (Words::default(), Vec::with_capacity(ends.len()), 0);
    for end in ends {
        values.push(words.number(&bytes[begin..end]));
        begin = end;
    }
    if values.is_empty() || words.len() > MAX_WORDS {
        return Err(NOT_OTF2);
    }
    let times = Column { values: times, ..Column::default() };
    Ok((vec![times, Column { values, decimals: 0, words: Some(words.into_words()) }], at))
}

/// The records of columns.
///
/// # Errors
/// They are not those of `parse_otf2`, or the records have more than `most` bytes.
pub fn format_otf2(columns: &[Column], most: usize) -> Result<Vec<u8>, TraceError> {
    let [times, numbers] = columns else { return Err(NO_LOG) };
    let Some(words) = &numbers.words else { return Err(NO_LOG) };
    if times.values.len() != numbers.values.len() {
        return Err(NO_LOG);
    }
    let mut records = Vec::new();
    for (time, number) in times.values.iter().zip(&numbers.values) {
        match word_of(words, *number)? {
            [TIMESTAMP, rest @ ..] => {
                records.push(TIMESTAMP);
                records.extend_from_slice(&time.to_le_bytes());
                records.extend_from_slice(rest);
            }
            word => records.extend_from_slice(word),
        }
        if records.len() > most {
            return Err(TOO_LONG);
        }
    }
    Ok(records)
}
