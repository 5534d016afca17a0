//! Record readers: batches partition the input, whatever the size of reads and of batches, and whatever the compression.
//!
//! An input is eight bytes of parameters, and the text to cut.

#![no_main]

use std::fs;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use millrace_core::record::{
    Batch, Content, Cutter, Error, Form, Format, Limits, Packing, Reader, compression, lengths, sniff,
};
use millrace_fuzz::{make_folder, show};

/// Bytes of parameters.
const HEAD: usize = 8;

/// Start and end lines of records of the format `regex`.
const PATTERNS: [(Option<&str>, Option<&str>); 4] =
    [(Some("^>"), Some("^/")), (Some("^ID"), None), (None, Some("^END$")), (None, Some("^$"))];

const COMPRESSIONS: [&str; 6] = ["", "gzip", "bgzf", "zstd", "bzip2", "xz"];

const FORMS: [Form; 3] = [Form::First, Form::Again, Form::Members];

/// One record: its bytes and its cost. Then the error that ended the reading, if there was one.
type Records = (Vec<(u64, u64)>, Option<String>);

fn make_cutter(byte: u8) -> Cutter {
    let (_, format) = Format::ALL[usize::from(byte) % Format::ALL.len()];
    let (start, end) = match format {
        Format::Regex => PATTERNS[usize::from(byte) / Format::ALL.len() % PATTERNS.len()],
        _ => (None, None),
    };
    Cutter::new(format, start, end).expect("valid parameters")
}

/// Reads record by record, with a buffer of `buffer` bytes.
fn read_records(sources: &[PathBuf], cutter: &Cutter, buffer: usize) -> Records {
    let mut reader = Reader::with_buffer(sources.to_vec(), cutter.clone(), buffer).expect("the sources exist");
    let mut found = Vec::new();
    loop {
        match reader.skip(1) {
            Ok(Some(Batch { records, bytes, cost, .. })) => {
                assert_eq!(records, 1);
                found.push((bytes, cost));
            }
            Ok(None) => {
                assert!(reader.at_end());
                assert_eq!(reader.records(), found.len() as u64);
                return (found, None);
            }
            Err(error) => return (found, Some(hide_folder(&error))),
        }
    }
}

/// The text of an error, without the folder of this execution.
fn hide_folder(error: &Error) -> String {
    let text = error.to_string();
    text.rsplit_once('/').map_or(text.clone(), |(_, rest)| rest.to_owned())
}

fn write_source(path: &Path, text: &[u8], codec: &str, form: Form) {
    match Packing::new(codec, form) {
        Some(packing) => {
            let mut packed = Vec::new();
            packing.pack(text, text.len() as u64, &mut packed).expect("memory suffices");
            fs::write(path, packed).expect("the folder can be written");
        }
        None => fs::write(path, text).expect("the folder can be written"),
    }
}

/// Cuts batches, and compares each with the records that it must hold; returns the joined records without headers.
fn check_batches(reader: &mut Reader, records: &Records, cutter: &Cutter, limits: Limits, dest: &Path) -> Vec<u8> {
    let header = reader.header().map(<[u8]>::to_vec).unwrap_or_default();
    let (mut joined, mut n_records) = (Vec::new(), 0);
    loop {
        let batch = match reader.cut(dest, limits) {
            Ok(Some(batch)) => batch,
            Ok(None) => {
                assert_eq!(records.1, None, "an error of reading record by record is none of cutting");
                break;
            }
            Err(error) => {
                assert_eq!(records.1.as_deref(), Some(hide_folder(&error).as_str()));
                break;
            }
        };
        let bytes = fs::read(dest).expect("the batch exists");
        assert_eq!(crc32c::crc32c(&bytes), batch.crc32c);
        assert_eq!(bytes.len() as u64, batch.header + batch.bytes);
        assert!(bytes.starts_with(&header) && header.len() as u64 == batch.header);
        let expected = &records.0[n_records..][..batch.records as usize];
        assert_eq!(batch.bytes, expected.iter().map(|(bytes, _)| bytes).sum::<u64>());
        assert_eq!(batch.cost, expected.iter().map(|(_, cost)| cost).sum::<u64>());
        // A batch is an input of its own, which has the same records.
        if compression(&bytes).is_empty() {
            assert_eq!(read_records(&[dest.to_owned()], cutter, 7), (expected.to_vec(), None));
            if let Ok(found) = lengths(dest, cutter.clone()) {
                assert_eq!(found, expected.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>());
            }
        }
        n_records += batch.records as usize;
        joined.extend_from_slice(&bytes[header.len()..]);
        fs::remove_file(dest).expect("the batch exists");
    }
    assert!(!dest.exists());
    assert_eq!(n_records, records.0.len());
    joined
}

/// Damages a compressed source: it gives the same records or an error, never others without an error.
fn check_damage(source: &Path, cutter: &Cutter, at: u8, records: &Records) {
    let mut packed = fs::read(source).expect("the source exists");
    let codec = compression(&packed);
    let place = usize::from(at) * packed.len() / 256;
    packed[place] ^= 1 << (at % 8);
    if compression(&packed) != codec {
        return;
    }
    fs::write(source, packed).expect("the source can be written");
    let found = read_records(&[source.to_owned()], cutter, 1 << 16);
    assert!(found.1.is_some() || found == *records, "damage of {codec} data at byte {place} is not noticed");
}

fuzz_target!(|data: &[u8]| {
    let Some((&[format, buffer, records, cost, bytes, packing, option, split], text)) =
        data.split_first_chunk::<HEAD>()
    else {
        return;
    };
    let (cutter, folder) = (make_cutter(format), make_folder());
    let dest = folder.path().join("batch");
    let (first, second) = text.split_at(usize::from(split) * text.len() / 255);
    let parts: &[&[u8]] = if split == 255 { &[text] } else { &[first, second] };
    let codec = COMPRESSIONS[usize::from(packing) % COMPRESSIONS.len()];
    let form = FORMS[usize::from(packing) / COMPRESSIONS.len() % FORMS.len()];
    let sources: Vec<_> = (0..parts.len()).map(|n| folder.path().join(n.to_string())).collect();
    for (path, part) in sources.iter().zip(parts) {
        write_source(path, part, codec, form);
        let _ = sniff(path).expect("the source exists");
    }
    let whole = read_records(&sources, &cutter, 1 << 16);
    assert_eq!(read_records(&sources, &cutter, 1 + usize::from(buffer) % 64), whole, "with another buffer");

    let limits = Limits { records: u64::from(records % 8), cost: u64::from(cost), bytes: u64::from(bytes) };
    let mut reader = Reader::with_buffer(sources.clone(), cutter.clone(), 1 + usize::from(buffer)).expect("valid");
    match option % 4 {
        1 => reader.need_content(Content::new(b"ACGT", u64::from(option / 4) % 8)),
        2 => reader.need_content(Content::new(b"", u64::from(option / 4) % 8)),
        3 => reader.group_by(u64::from(option / 4)),
        _ => {}
    }
    let joined = check_batches(&mut reader, &whole, &cutter, limits, &dest);
    // Text that begins as compressed data does is read as that, as every tool does.
    if !codec.is_empty() || parts.iter().all(|part| compression(part).is_empty()) {
        if whole.1.is_none() && lengths(&sources[0], cutter.clone()).is_ok() {
            assert!(joined == parts.concat(), "{} became {}", show(&parts.concat()), show(&joined));
        }
        // zstd without its checksum notices nothing: as the tools that write it, and those that read it.
        if !codec.is_empty() && (codec, form) != ("zstd", Form::First) && parts.len() == 1 {
            check_damage(&sources[0], &cutter, option, &whole);
        }
    }
});
