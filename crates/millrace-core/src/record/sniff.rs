//! Guesses a format from the first bytes of a file.

use std::path::Path;
use std::sync::Arc;

use super::error::Error;
use super::fastq::Fastq;
use super::format::Format;
use super::scan::{Scanner, is_blank};
use super::source::{ReadError, Source};

/// Bytes that are looked at, after decompression.
const HEAD: usize = 64 << 10;

/// Guesses the format of a regular file, compressed or not; None if its first bytes leave a doubt.
///
/// # Errors
/// [`Error::Io`] if it cannot be opened or read.
pub fn sniff(path: &Path) -> Result<Option<Format>, Error> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut source = Source::open(path, &Arc::default(), &mut || false)?;
    let mut head = vec![0; HEAD];
    let mut len = 0;
    while len < HEAD {
        match source.read(&mut head[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(ReadError::Io(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(ReadError::Io(error)) => return Err(Error::io(path, error)),
            // What could be read is enough for a guess; reading on will say what is wrong.
            Err(ReadError::Damaged(_)) => break,
        }
    }
    Ok(guess(&head[..len], len < HEAD))
}

/// Guesses from `head`, which with `is_all` is the whole file.
fn guess(head: &[u8], is_all: bool) -> Option<Format> {
    let lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end).collect();
    let first = *lines.iter().find(|line| !is_blank(line))?;
    let starts = |prefix: &[u8]| first.starts_with(prefix);
    let has = |prefix: &[u8]| lines.iter().any(|line| line.starts_with(prefix));
    if starts(b">") {
        // PIR and an SDF data item look alike but for the rest of the line.
        return (!starts(b"> <")).then_some(Format::Fasta);
    }
    if starts(b"HMMER3/") || starts(b"HMMER2") {
        return Some(Format::Hmm);
    }
    if starts(b"INFERNAL1/") {
        return Some(Format::Cm);
    }
    if starts(b"##fileformat=VCF") {
        return Some(Format::Vcf);
    }
    if has(b"BEGIN IONS") && has(b"END IONS") {
        return Some(Format::Mgf);
    }
    if starts(b"# STOCKHOLM") {
        return Some(Format::Stockholm);
    }
    if starts(b"LOCUS ") {
        return Some(Format::Genbank);
    }
    if starts(b"@<TRIPOS>") || (starts(b"#") && has(b"@<TRIPOS>MOLECULE")) {
        return Some(Format::Mol2);
    }
    if starts(b"@") {
        let is_fastq = Fastq::default().scan(head, is_all).is_ok_and(|step| step.ended);
        return is_fastq.then_some(Format::Fastq);
    }
    if lines.get(3).is_some_and(|counts| counts.ends_with(b"V2000") || counts.ends_with(b"V3000")) {
        return Some(Format::Sdf);
    }
    if has(b"ROOT") && has(b"ENDROOT") && (has(b"ATOM  ") || has(b"HETATM")) {
        return Some(Format::Pdbqt);
    }
    let is_json = starts(b"{") && lines.len() > 1 && serde_json::from_slice::<serde::de::IgnoredAny>(first).is_ok();
    is_json.then_some(Format::Jsonl)
}
