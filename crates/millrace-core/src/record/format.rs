//! The record formats by name, and how each is cut.

use regex::bytes::{Regex, RegexBuilder};

use super::delimited::Delimited;
use super::error::Error;
use super::fasta::Fasta;
use super::fastq::Fastq;
use super::lines::{Blank, Lines, Rules, Which, is_blank_head};
use super::rows::Rows;
use super::scan::Scanner;

/// A record format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the names say it; `Cutter::rules` tells where each is cut
pub enum Format {
    Fasta,
    Fastq,
    Mol2,
    Sdf,
    Smiles,
    Hmm,
    Cm,
    Stockholm,
    Genbank,
    Pdbqt,
    Jsonl,
    Csv,
    CsvHeader,
    Lines,
    LinesHeader,
    Vcf,
    Mgf,
    Nul,
    Regex,
}

/// Which records at the beginning of a source are its header: they are none of its records, and every batch begins with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Header {
    /// The first one.
    First,
    /// All that begin with this byte; behind the others, none may.
    Byte(u8),
    /// What stands before the first one that begins so.
    Before(&'static [u8]),
}

impl Format {
    /// All formats, by name.
    pub const ALL: [(&'static str, Self); 19] = [
        ("fasta", Self::Fasta),
        ("fastq", Self::Fastq),
        ("mol2", Self::Mol2),
        ("sdf", Self::Sdf),
        ("smiles", Self::Smiles),
        ("hmm", Self::Hmm),
        ("cm", Self::Cm),
        ("stockholm", Self::Stockholm),
        ("genbank", Self::Genbank),
        ("pdbqt", Self::Pdbqt),
        ("jsonl", Self::Jsonl),
        ("csv", Self::Csv),
        ("csv+header", Self::CsvHeader),
        ("lines", Self::Lines),
        ("lines+header", Self::LinesHeader),
        ("vcf", Self::Vcf),
        ("mgf", Self::Mgf),
        ("nul", Self::Nul),
        ("regex", Self::Regex),
    ];

    /// The format of that name.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is none.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|&(_, format)| format).ok_or_else(|| Error::Usage(format!("unknown record format '{name}'")))
    }

    /// The name of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, format)| *format == self).map_or("", |(name, _)| name)
    }
}

/// A format with its parameters: makes scanners.
#[derive(Debug, Clone)]
pub struct Cutter {
    format: Format,
    record_start: Option<Regex>,
    record_end: Option<Regex>,
}

impl Cutter {
    /// Cuts by a format that needs no parameters.
    ///
    /// # Errors
    /// [`Error::Usage`] for [`Format::Regex`] without patterns, for patterns with another format, and for patterns
    /// that are no regular expressions.
    pub fn new(format: Format, record_start: Option<&str>, record_end: Option<&str>) -> Result<Self, Error> {
        let is_given = record_start.is_some() || record_end.is_some();
        if (format == Format::Regex) != is_given {
            let problem = match format {
                Format::Regex => "format regex needs record_start, record_end or both".to_owned(),
                _ => format!("record_start and record_end belong to format regex, not to {}", format.name()),
            };
            return Err(Error::Usage(problem));
        }
        Ok(Self {
            format,
            record_start: compile("record_start", record_start)?,
            record_end: compile("record_end", record_end)?,
        })
    }

    /// Makes a scanner at the start of a source.
    pub(crate) fn scanner(&self) -> Box<dyn Scanner> {
        match self.format {
            Format::Fasta => Box::new(Fasta::default()),
            Format::Fastq => Box::new(Fastq::default()),
            Format::Csv | Format::CsvHeader => Box::new(Rows::default()),
            Format::Lines | Format::LinesHeader | Format::Vcf => Box::new(Delimited { delimiter: b'\n' }),
            Format::Nul => Box::new(Delimited { delimiter: 0 }),
            _ => Box::new(Lines::new(self.rules())),
        }
    }

    /// What is the header of a source; None: all of it is records.
    pub(crate) fn header(&self) -> Option<Header> {
        match self.format {
            Format::CsvHeader | Format::LinesHeader => Some(Header::First),
            Format::Vcf => Some(Header::Byte(b'#')),
            Format::Mgf => Some(Header::Before(IONS)),
            _ => None,
        }
    }

    fn rules(&self) -> Rules {
        let starts = |prefix: &'static [u8], comments| Rules {
            start: Which::Prefix(prefix),
            end: Which::Never,
            blank: Blank::Trails,
            comments,
            items: false,
            preamble: false,
        };
        let ends = |end: Which| Rules {
            start: Which::Never,
            end,
            blank: Blank::Leads,
            comments: false,
            items: false,
            preamble: false,
        };
        let regex = |pattern: &Option<Regex>| pattern.clone().map_or(Which::Never, Which::Regex);
        match self.format {
            // DOCK puts "########## Name:" before the molecule; Open Babel reads it there (-ac).
            Format::Mol2 => starts(MOL2, true),
            Format::Genbank => starts(LOCUS, false),
            Format::Mgf => Rules { preamble: true, ..starts(IONS, false) },
            // The filter profile behind a model belongs to it.
            Format::Cm => starts(INFERNAL, false),
            Format::Sdf => Rules { items: true, ..ends(Which::Prefix(b"$$$$")) },
            Format::Hmm | Format::Stockholm => ends(Which::Prefix(b"//")),
            Format::Pdbqt => ends(Which::Prefix(b"ENDMDL")),
            Format::Jsonl => Rules { blank: Blank::Trails, ..ends(Which::Filled) },
            // Open Babel 3.1.1 stops reading at a blank line and skips '#' lines.
            Format::Smiles => Rules { blank: Blank::Stops, comments: true, ..ends(Which::Filled) },
            _ => Rules { start: regex(&self.record_start), ..ends(regex(&self.record_end)) },
        }
    }

    /// Whether a file that starts with `head` surely starts with a whole record.
    ///
    /// A tool reads each of its files on its own, so one batch holds two of them only where reading them as one is the
    /// same: both start with a whole record, and the first ends with one ([`Cutter::ends`]).
    pub(crate) fn begins(&self, head: &[u8]) -> bool {
        match self.format {
            Format::Fasta => head.starts_with(b">") && head.get(1).is_some_and(|&byte| byte != b'?'),
            Format::Fastq => head.starts_with(b"@"),
            Format::Mol2 => head.starts_with(MOL2),
            Format::Genbank => head.starts_with(LOCUS),
            Format::Cm => head.starts_with(INFERNAL),
            Format::Jsonl => head.first().is_some_and(u8::is_ascii_graphic),
            Format::Lines => true,
            // Blank lines alone would belong to the last record of the file before.
            Format::Sdf | Format::Hmm | Format::Stockholm | Format::Pdbqt => !is_blank_head(head),
            // A blank line anywhere in the first SMILES file would hide the second; a quote that is still open, a table.
            Format::Smiles | Format::Csv | Format::Nul | Format::Regex => false,
            // A header stands once in a file.
            Format::CsvHeader | Format::LinesHeader | Format::Vcf | Format::Mgf => false,
        }
    }

    /// Whether a file that ends with `tail` surely ends with a whole record.
    pub(crate) fn ends(&self, tail: &[u8]) -> bool {
        let Some(line_end) = tail.strip_suffix(b"\n") else { return false };
        let last = line_end.strip_suffix(b"\r").unwrap_or(line_end);
        match self.format {
            Format::Fastq | Format::Jsonl => last.last().is_some_and(|&byte| byte != b'\n'),
            Format::Sdf => last.ends_with(b"\n$$$$"),
            Format::Hmm | Format::Cm | Format::Stockholm => last.ends_with(b"\n//"),
            Format::Pdbqt => last.ends_with(b"\nENDMDL"),
            _ => true,
        }
    }
}

const MOL2: &[u8] = b"@<TRIPOS>MOLECULE";
const LOCUS: &[u8] = b"LOCUS ";
const IONS: &[u8] = b"BEGIN IONS";
const INFERNAL: &[u8] = b"INFERNAL1/";

fn compile(name: &str, pattern: Option<&str>) -> Result<Option<Regex>, Error> {
    let compile = |pattern| {
        // Bytes, not text: '.' must match whatever encoding an input has.
        let regex = RegexBuilder::new(pattern).unicode(false).build();
        regex.map_err(|error| Error::Usage(format!("{name} is no regular expression: {error}")))
    };
    pattern.map(compile).transpose()
}
