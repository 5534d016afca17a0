//! Records of a CLOG-2 file, as MPE writes it: time, rank, and the record without these.
//!
//! After the preamble there are blocks of one size. In each, records follow one another, up to one that ends the block or
//! the log; the rest of the block is what its memory held before: as a rule, the bytes that the block before has there.
//! A record is a header of 24 bytes (time, communicator, rank, thread, kind) and, by its kind, a body of known length.
//! Source: MPE2 in MPICH, `clog_record.h`, `clog_block.c`, `clog_merger.c` (version CLOG-02.44).

use super::words::Words;
use super::{Column, NO_LOG, TOO_LONG, TraceError, word_of};

const HEADER_BYTES: usize = 24;
const END_OF_LOG: i32 = 0;
const END_OF_BLOCK: i32 = 1;

/// Bytes of the body of each kind of record.
const BODY_BYTES: [usize; 12] = [0, 0, 112, 104, 40, 8, 40, 24, 16, 48, 48, 8];

/// Different words at most; with more of them nothing recurs.
const MAX_WORDS: usize = 1 << 20;

/// Records that end a block have ranks of their own, from here: they come between those of a rank as room runs out.
const FIRST_RANK_OF_ENDS: i64 = 1 << 32;

/// What follows the last word of a block: the rest is as in the block before, or stands there.
const AS_BEFORE: u8 = 0;
const STANDS_HERE: u8 = 1;

const NOT_CLOG2: TraceError = TraceError("its blocks are not as those of CLOG-2");

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clog2Form {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Whether the highest byte of a number comes first.
    pub is_big_endian: bool,
}

impl Clog2Form {
    fn int_at(self, record: &[u8], at: usize) -> Option<i32> {
        let bytes = record.get(at..at + 4)?.try_into().ok()?;
        Some(if self.is_big_endian { i32::from_be_bytes(bytes) } else { i32::from_le_bytes(bytes) })
    }

    fn time_of(self, record: &[u8]) -> Option<i64> {
        let bytes = record.get(..8)?.try_into().ok()?;
        Some(if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
    }

    fn is_sound(self) -> bool {
        self.block_bytes >= HEADER_BYTES
    }
}

/// The records of the whole blocks up to the end of the log, as three columns: the bits of their times, their ranks, and
/// words; how many bytes these blocks are, and whether the log ends.
///
/// # Errors
/// These are no such blocks.
pub fn parse_clog2(blocks: &[u8], form: Clog2Form) -> Result<(Vec<Column>, usize, bool), TraceError> {
    if !form.is_sound() || blocks.len() < form.block_bytes {
        return Err(NOT_CLOG2);
    }
    let zeros = vec![0; form.block_bytes];
    // Words without time and rank, one after the other: then each has a place that stays.
    let (mut bytes, mut ends) = (Vec::with_capacity(blocks.len()), vec![]);
    let (mut times, mut ranks) = (vec![], vec![]);
    let (mut before, mut length, mut is_over) = (zeros.as_slice(), 0, false);
    for block in blocks.chunks_exact(form.block_bytes) {
        let mut at = 0;
        loop {
            let record = &block[at..];
            let (Some(time), Some(rank), Some(kind)) =
                (form.time_of(record), form.int_at(record, 12), form.int_at(record, 20))
            else {
                return Err(NOT_CLOG2);
            };
            let body = usize::try_from(kind).ok().and_then(|kind| BODY_BYTES.get(kind)).ok_or(NOT_CLOG2)?;
            let end = at + HEADER_BYTES + body;
            let rest = block.get(at + 16..end).ok_or(NOT_CLOG2)?;
            let is_last = matches!(kind, END_OF_LOG | END_OF_BLOCK);
            times.push(time);
            ranks.push(if is_last { FIRST_RANK_OF_ENDS } else { 0 } + (i64::from(rank) & 0xffff_ffff));
            bytes.extend_from_slice(&block[at + 8..at + 12]);
            bytes.extend_from_slice(rest);
            if is_last {
                if block[end..] == before[end..] {
                    bytes.push(AS_BEFORE);
                } else {
                    bytes.push(STANDS_HERE);
                    bytes.extend_from_slice(&block[end..]);
                }
            }
            ends.push(bytes.len());
            at = end;
            if is_last {
                is_over = kind == END_OF_LOG;
                break;
            }
        }
        (before, length) = (block, length + block.len());
        if is_over {
            break;
        }
    }
    let (mut words, mut values, mut begin) = (Words::default(), Vec::with_capacity(ends.len()), 0);
    for end in ends {
        values.push(words.number(&bytes[begin..end]));
        begin = end;
    }
    if words.len() > MAX_WORDS {
        return Err(NOT_CLOG2);
    }
    let numbers = |values| Column { values, ..Column::default() };
    let words = Column { values, decimals: 0, words: Some(words.into_words()) };
    Ok((vec![numbers(times), numbers(ranks), words], length, is_over))
}

/// The blocks of columns.
///
/// # Errors
/// They are not those of `parse_clog2`, or the blocks have more than `most` bytes.
pub fn format_clog2(columns: &[Column], form: Clog2Form, most: usize) -> Result<Vec<u8>, TraceError> {
    let [times, ranks, numbers] = columns else { return Err(NO_LOG) };
    let Some(words) = &numbers.words else { return Err(NO_LOG) };
    let n_rows = times.values.len();
    if !form.is_sound() || form.block_bytes > most || ranks.values.len() != n_rows || numbers.values.len() != n_rows {
        return Err(NO_LOG);
    }
    let mut blocks: Vec<u8> = Vec::new();
    let mut block_begin = 0;
    for ((time, rank), number) in times.values.iter().zip(&ranks.values).zip(&numbers.values) {
        let word = word_of(words, *number)?;
        // Communicator, thread and kind, and a body; an end of a block has what follows it.
        let (head, body) = word.split_at_checked(12).ok_or(NO_LOG)?;
        let is_last = *rank >= FIRST_RANK_OF_ENDS;
        let rank = (rank & 0xffff_ffff) as u32;
        let (time, rank) = if form.is_big_endian {
            (time.to_be_bytes(), rank.to_be_bytes())
        } else {
            (time.to_le_bytes(), rank.to_le_bytes())
        };
        for part in [&time, &head[..4], &rank, &head[4..]] {
            blocks.extend_from_slice(part);
        }
        let block_end = block_begin + form.block_bytes;
        if block_end > most {
            return Err(TOO_LONG);
        }
        match (is_last, body) {
            (false, body) => blocks.extend_from_slice(body),
            (true, [AS_BEFORE]) if blocks.len() <= block_end => {
                let used = blocks.len() - block_begin;
                match block_begin.checked_sub(form.block_bytes) {
                    Some(before) => blocks.extend_from_within(before + used..block_begin),
                    None => blocks.resize(block_end, 0),
                }
            }
            (true, [STANDS_HERE, rest @ ..]) => blocks.extend_from_slice(rest),
            _ => return Err(NO_LOG),
        }
        if blocks.len() > block_end || is_last && blocks.len() != block_end {
            return Err(NO_LOG);
        }
        if is_last {
            block_begin = block_end;
        }
    }
    if blocks.len() == block_begin { Ok(blocks) } else { Err(NO_LOG) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Clog2Form = Clog2Form { block_bytes: 512, is_big_endian: true };

    fn record(time: f64, rank: i32, kind: i32, event: i32) -> Vec<u8> {
        let mut record = [time.to_be_bytes().as_slice(), &0_i32.to_be_bytes(), &rank.to_be_bytes()].concat();
        record.extend([0_i32.to_be_bytes(), kind.to_be_bytes()].concat());
        let body = BODY_BYTES[usize::try_from(kind).unwrap()];
        record.extend(event.to_be_bytes().into_iter().cycle().take(body));
        record
    }

    /// Blocks in the same memory, one after the other.
    fn blocks(n: usize) -> Vec<u8> {
        let (mut memory, mut written) = (vec![0xaa; FORM.block_bytes], vec![]);
        for block in 0..n {
            let mut records: Vec<u8> = (0..12 - 2 * (block % 3) as i32)
                .flat_map(|event| record(f64::from(event) / 4.0, event % 3, 5, event))
                .collect();
            records.extend(record(9.0, 0, if block + 1 == n { END_OF_LOG } else { END_OF_BLOCK }, 0));
            memory[..records.len()].copy_from_slice(&records);
            written.extend_from_slice(&memory);
        }
        written
    }

    #[test]
    fn what_is_left_in_the_memory_of_blocks_is_restored() {
        let whole = blocks(9);
        let mut followed = whole.clone();
        followed.extend([0; 4000]);
        let (columns, length, is_over) = parse_clog2(&followed, FORM).unwrap();
        assert!(is_over && length == whole.len());
        let words = columns[2].words.as_ref().unwrap();
        assert!(
            words.iter().map(Vec::len).sum::<usize>() < 2 * FORM.block_bytes,
            "the rests are those of blocks before"
        );
        assert_eq!(format_clog2(&columns, FORM, whole.len()).unwrap(), whole);
        assert_eq!(format_clog2(&columns, FORM, whole.len() - 1), Err(TOO_LONG));
        let (_, length, is_over) = parse_clog2(&whole[..3 * FORM.block_bytes + 7], FORM).unwrap();
        assert!(!is_over && length == 3 * FORM.block_bytes);
    }

    #[test]
    fn other_bytes_and_columns_are_errors() {
        let whole = blocks(3);
        assert!(parse_clog2(&whole[1..], FORM).is_err());
        assert!(parse_clog2(&whole, Clog2Form { is_big_endian: false, ..FORM }).is_err());
        assert_eq!(parse_clog2(&whole[..100], FORM), Err(NOT_CLOG2));
        let (columns, _, _) = parse_clog2(&blocks(3), FORM).unwrap();
        let mut short = columns.clone();
        short[2].values.pop();
        assert_eq!(format_clog2(&short, FORM, 1 << 20), Err(NO_LOG));
        let mut wrong = columns.clone();
        wrong[2].values[0] = 1 << 40;
        assert_eq!(format_clog2(&wrong, FORM, 1 << 20), Err(NO_LOG));
        assert_eq!(format_clog2(&columns, Clog2Form { block_bytes: 256, ..FORM }, 1 << 20), Err(NO_LOG));
    }
}
