//! Reads sources one after another and writes batches of whole records to files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memchr::memchr_iter;

use super::digest::{RecordDigests, RecordHasher};
use super::error::Error;
use super::format::{Cutter, Header};
use super::rows::BYTE_ORDER_MARK;
use super::scan::{Content, Fault, Scanner};
use super::source::{Codec, ReadError, Source, total_size};

/// Bytes read at once: small enough to stay in a core's cache from the read to the checksum.
const BUFFER: usize = 256 << 10;

/// Bytes that a header may have: it is kept in memory, and written with each batch.
const MAX_HEADER: usize = 64 << 20;

/// Bytes of records that are looked at for one that can stand alone: more of them are cut like any others.
const MAX_SCANT: usize = 4 << 20;

/// Bytes kept of the end of a source: the longest end line with its newlines fits.
const TAIL: usize = 12;

/// Where a batch ends: with the record that reaches one of these; 0 is no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct Limits {
    /// Records.
    pub records: u64,
    /// Cost units: residues of FASTA and FASTQ, else bytes.
    pub cost: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A run of consecutive whole records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of records.
    pub records: u64,
    /// Bytes of the header before them.
    pub header: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their cost: residues of FASTA and FASTQ, else bytes.
    pub cost: u64,
    /// Cost of the costliest of them.
    pub largest: u64,
    /// Cost of the cheapest of them that costs anything; 0: none does.
    pub smallest: u64,
    /// How many of them have what [`Reader::need_content`] asks for.
    pub sufficient: u64,
    /// CRC-32C of header and records.
    pub crc32c: u32,
}

impl Batch {
    fn reaches(&self, limits: Limits) -> bool {
        let reached = |value, limit| limit != 0 && value >= limit;
        reached(self.records, limits.records) || reached(self.cost, limits.cost) || reached(self.bytes, limits.bytes)
    }
}

/// Asked when a signal arrives while a read waits; true stops the reader with [`Error::Interrupted`].
pub type Interrupt = Box<dyn FnMut() -> bool + Send>;

/// Cuts sources, read one after another, into batches of whole records, byte for byte.
///
/// Every byte goes into exactly one batch, in order, but for the header of some formats, which goes into all. A record
/// never spans two sources, and a batch does so only where the records stay apart when the sources are read as one.
///
/// # Examples
/// ```
/// use millrace_core::record::{Cutter, Format, Limits, Reader};
/// # let dir = tempfile::tempdir().unwrap();
/// # let (fasta, batch) = (dir.path().join("q.fa"), dir.path().join("batch.fa"));
/// std::fs::write(&fasta, ">a\nACGT\nAC\n>b\nAA\n>c\n").unwrap();
/// let mut reader = Reader::new(vec![fasta], Cutter::new(Format::Fasta, None, None)?)?;
/// let cut = reader.cut(&batch, Limits { records: 2, ..Limits::default() })?.unwrap();
/// assert_eq!((cut.records, cut.cost, cut.largest, cut.smallest), (2, 8, 6, 2));
/// assert_eq!(std::fs::read(batch).unwrap(), b">a\nACGT\nAC\n>b\nAA\n");
/// # Ok::<(), millrace_core::record::Error>(())
/// ```
pub struct Reader {
    paths: std::vec::IntoIter<PathBuf>,
    cutter: Cutter,
    total: Option<u64>,
    taken: Arc<AtomicU64>,
    /// Those of the sources before this one.
    before: u64,
    source: Option<Source>,
    /// The source has given its last byte to the buffer.
    drained: bool,
    scanner: Box<dyn Scanner>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The source starts with a whole record, for all that was seen of it.
    begins: bool,
    tail: Vec<u8>,
    /// Of the source at hand and those before; None before the first.
    header: Option<Vec<u8>>,
    records: u64,
    failed: Option<Error>,
    interrupt: Interrupt,
    content: Option<Content>,
    group_cost: u64,
    /// Cost of the records since the last end of a group.
    grouped: u64,
}

impl Reader {
    /// Reads `sources`, each plain or compressed ("-" is standard input), one after another. Opens none of them yet.
    ///
    /// # Errors
    /// [`Error::Io`] if one is not there.
    pub fn new(sources: Vec<PathBuf>, cutter: Cutter) -> Result<Self, Error> {
        Self::with_buffer(sources, cutter, BUFFER)
    }

    /// As [`Reader::new`], reading `buffer` bytes at once; how records are cut does not depend on it.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn with_buffer(sources: Vec<PathBuf>, cutter: Cutter, buffer: usize) -> Result<Self, Error> {
        Ok(Self {
            total: total_size(&sources)?,
            paths: sources.into_iter(),
            scanner: cutter.scanner(),
            cutter,
            taken: Arc::default(),
            before: 0,
            source: None,
            drained: false,
            buffer: vec![0; buffer],
            start: 0,
            end: 0,
            begins: false,
            tail: Vec::with_capacity(2 * TAIL),
            header: None,
            records: 0,
            failed: None,
            interrupt: Box::new(|| false),
            content: None,
            group_cost: 0,
            grouped: 0,
        })
    }

    /// Cuts only behind a record with `content` that another one with it follows, in FASTA and FASTQ. So no batch has
    /// nothing but records without, and none ends with them, save the last: a tool that takes several records at a time, from
    /// the first on, has the same ones beside each of these as in the whole, or enough of them.
    pub fn need_content(&mut self, content: Content) {
        self.scanner.count_content(content.clone());
        self.content = Some(content);
    }

    /// Sets who is asked when a signal arrives while a read waits.
    pub fn on_interrupt(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }

    /// Cuts only between groups: a group is the fewest consecutive records, from the first on, whose cost reaches
    /// `cost`. For tools that work on such groups, and whose result for a record depends on its group.
    pub fn group_by(&mut self, cost: u64) {
        self.group_cost = cost;
    }

    /// Ordinal of the next record, from 0.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of the sources, as they are on disk, that were consumed. Of a compressed file, as if all of it were compressed
    /// as well as what was seen; of what is compressed and no file, those read.
    #[must_use]
    pub fn offset(&self) -> u64 {
        let (taken, rest) = (self.taken.load(Ordering::Relaxed), self.end - self.start);
        match &self.source {
            Some(source) if source.codec == Codec::Plain => taken.saturating_sub(rest as u64),
            Some(source) => source.position(rest).map_or(taken, |position| self.before + position),
            None => taken,
        }
    }

    /// Name of the compression of the source at hand; empty: it is not compressed, or none was opened yet.
    #[must_use]
    pub fn compression(&self) -> &'static str {
        self.source.as_ref().map_or("", |source| source.codec.name())
    }

    /// Whether the source at hand is gzip data of which more than one member was seen.
    #[must_use]
    pub fn has_members(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.has_more.load(Ordering::Relaxed))
    }

    /// Bytes of all sources on disk; None if one is not a regular file.
    #[must_use]
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Whether no record follows; reads ahead to know. False if the next cut will be an error.
    pub fn at_end(&mut self) -> bool {
        if self.failed.is_none() {
            match self.ahead() {
                Ok(more) => return !more,
                Err(error) => self.failed = Some(error),
            }
        }
        false
    }

    /// What every batch begins with, in a format that has a header; reads ahead to know.
    ///
    /// # Errors
    /// As [`Reader::cut`].
    pub fn header(&mut self) -> Result<&[u8], Error> {
        if self.failed.is_none()
            && let Err(error) = self.ahead()
        {
            self.failed = Some(error);
        }
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(self.header.as_deref().unwrap_or_default()),
        }
    }

    /// Writes the header, if there is one, and the next records to `dest`, made or emptied, until they reach a limit; at least one record.
    ///
    /// None at the end of the input, and then there is no `dest`.
    ///
    /// # Errors
    /// [`Error::Data`] if the next record is damaged: those before it are cut first, as a batch of their own. An error
    /// stays: the reader returns it again. A `dest` that could not be written is removed.
    pub fn cut(&mut self, dest: &Path, limits: Limits) -> Result<Option<Batch>, Error> {
        self.batch(limits, Some(dest))
    }

    /// Passes over the next `n_records`, or as many as there are; None at the end of the input.
    ///
    /// # Errors
    /// As [`Reader::cut`].
    pub fn skip(&mut self, n_records: u64) -> Result<Option<Batch>, Error> {
        if n_records == 0 {
            return Ok(Some(Batch::default()));
        }
        self.batch(Limits { records: n_records, ..Limits::default() }, None)
    }

    /// Passes over all records that are left, and digests each (BLAKE3).
    ///
    /// # Errors
    /// As [`Reader::cut`], also if whole records came before.
    pub fn digest_records(&mut self) -> Result<RecordDigests, Error> {
        let mut found = RecordDigests::default();
        loop {
            let mut hasher = RecordHasher::default();
            let limits = Limits { records: 1, ..Limits::default() };
            let Some(record) = self.fill_pass(Pass { hasher: Some(&mut hasher), ..Pass::new(limits) }, None)? else {
                return Ok(found);
            };
            found.sufficient += record.sufficient;
            hasher.finish(&mut found);
        }
    }

    /// Deals all records that are left to `dests` by turns: the first goes to the first, and after the last the first has
    /// its turn again. Appends to the files, which exist; none gets a header. Returns the number of records.
    ///
    /// # Errors
    /// As [`Reader::cut`], also if whole records came before.
    ///
    /// # Examples
    /// ```
    /// use millrace_core::record::{Cutter, Format, Reader};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (fasta, odd, even) = (dir.path().join("q.fa"), dir.path().join("odd"), dir.path().join("even"));
    /// std::fs::write(&fasta, ">a\nAC\n>b\nAA\n>c\n").unwrap();
    /// # (std::fs::write(&odd, "").unwrap(), std::fs::write(&even, "").unwrap());
    /// let mut reader = Reader::new(vec![fasta], Cutter::new(Format::Fasta, None, None)?)?;
    /// assert_eq!(reader.deal_records(&[odd.clone(), even.clone()])?, 3);
    /// assert_eq!(std::fs::read(odd).unwrap(), b">a\nAC\n>c\n");
    /// assert_eq!(std::fs::read(even).unwrap(), b">b\nAA\n");
    /// # Ok::<(), millrace_core::record::Error>(())
    /// ```
    pub fn deal_records(&mut self, dests: &[PathBuf]) -> Result<u64, Error> {
        let open = |path: &PathBuf| File::options().append(true).open(path).map_err(|error| Error::io(path, error));
        let files = dests.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let mut n_records = 0;
        for (path, file) in dests.iter().zip(&files).cycle() {
            let mut pass = Pass::new(Limits { records: 1, ..Limits::default() });
            pass.dest = Some(Dest { path, file: file.try_clone().map_err(|error| Error::io(path, error))? });
            match self.fill_pass(pass, None)? {
                Some(_) => n_records += 1,
                None => break,
            }
        }
        Ok(n_records)
    }

    fn batch(&mut self, limits: Limits, dest: Option<&Path>) -> Result<Option<Batch>, Error> {
        self.fill_pass(Pass::new(limits), dest)
    }

    fn fill_pass<'a>(&mut self, mut pass: Pass<'a>, dest: Option<&'a Path>) -> Result<Option<Batch>, Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result =
            self.open_pass(&mut pass, dest).and_then(|more| if more { self.fill_batch(&mut pass) } else { Ok(()) });
        let result = match result {
            // Whole records before a damaged one are good: they are cut back to, and the error waits for the next call.
            Err(error @ Error::Data { .. }) if pass.batch.records > 0 => {
                self.failed = Some(error);
                pass.cut_back()
            }
            result => result,
        };
        if let Err(error) = result {
            if let Some(dest) = pass.dest {
                // The error counts, not that of the removal; a device or pipe is not ours to remove.
                if dest.file.metadata().is_ok_and(|metadata| metadata.is_file()) {
                    let _ = fs::remove_file(dest.path);
                }
            }
            self.failed = Some(error.clone());
            return Err(error);
        }
        Ok((pass.batch.records > 0).then_some(pass.batch))
    }

    /// Opens the destination if there is a record to write.
    fn open_pass<'a>(&mut self, pass: &mut Pass<'a>, dest: Option<&'a Path>) -> Result<bool, Error> {
        if !self.ahead()? {
            return Ok(false);
        }
        if let Some(path) = dest {
            pass.dest = Some(Dest { path, file: File::create(path).map_err(|error| Error::io(path, error))? });
        }
        pass.begin(self.header.as_deref().unwrap_or_default())?;
        Ok(true)
    }

    /// Moves whole records into `pass` until a limit or the end of the input.
    fn fill_batch(&mut self, pass: &mut Pass<'_>) -> Result<(), Error> {
        loop {
            let from = self.start;
            let (result, boundary) = self.scan_buffer(pass);
            let piece = &self.buffer[from..self.start];
            keep_tail(&mut self.tail, piece);
            pass.take(piece, boundary.map(|at| at - from))?;
            if result.map_err(|fault| self.fault(fault))? {
                return Ok(());
            }
            if !self.drained {
                self.fill()?;
            } else if pass.full || !self.next_source_joins(pass)? {
                return Ok(());
            }
        }
    }

    /// Scans what is in the buffer; returns whether the batch is full, and where in the buffer its last record ends.
    fn scan_buffer(&mut self, pass: &mut Pass<'_>) -> (Result<bool, Fault>, Option<usize>) {
        let mut boundary = None;
        let mut size = pass.size;
        while self.start < self.end || (self.drained && size > pass.batch.bytes) {
            if pass.full && size == pass.batch.bytes {
                match self.content_follows() {
                    Some(true) => return (Ok(true), boundary),
                    Some(false) => {}
                    None => break,
                }
            }
            if size == pass.batch.bytes && self.is_header_line() {
                return (Err(self.late_header()), boundary);
            }
            let step = match self.scanner.scan(&self.buffer[self.start..self.end], self.drained) {
                Ok(step) => step,
                Err(fault) => return (Err(fault), boundary),
            };
            self.start += step.len;
            size += step.len as u64;
            pass.cost += step.cost;
            pass.content += step.content;
            if step.ended {
                boundary = Some(self.start);
                self.records += 1;
                self.grouped += pass.cost;
                let is_sufficient = self.has_content(pass);
                pass.full |= pass.end_record(size, is_sufficient);
                if self.group_cost != 0 && pass.dest.is_some() {
                    // Not between groups: the limit counts once the group is whole.
                    pass.full &= self.grouped >= self.group_cost;
                }
                if self.grouped >= self.group_cost {
                    self.grouped = 0;
                }
                if pass.dest.is_some() {
                    pass.full &= is_sufficient;
                }
                if pass.full && (self.content.is_none() || pass.dest.is_none()) {
                    return (Ok(true), boundary);
                }
            } else {
                break;
            }
        }
        (Ok(false), boundary)
    }

    /// Whether the record that has just ended can stand alone.
    fn has_content(&self, pass: &Pass<'_>) -> bool {
        self.content.as_ref().is_none_or(|content| content.is_enough(pass.content))
    }

    /// Whether one of the next records of the source can stand alone; `None` if that shows only with more data. To be asked
    /// between two records.
    fn content_follows(&self) -> Option<bool> {
        let content = self.content.as_ref()?;
        let data = &self.buffer[self.start..self.end];
        if data.len() > MAX_SCANT {
            return Some(true);
        }
        let mut scanner = self.cutter.scanner();
        scanner.count_content(content.clone());
        let (mut at, mut n_letters) = (0, 0);
        loop {
            // What is wrong there is told when it is cut.
            let Ok(step) = scanner.scan(&data[at..], self.drained) else { return Some(true) };
            (at, n_letters) = (at + step.len, n_letters + step.content);
            if content.is_enough(n_letters) {
                return Some(true);
            }
            if !step.ended || at == data.len() {
                return if self.drained { Some(false) } else { None };
            }
            n_letters = 0;
        }
    }

    /// Goes on to the next source with bytes; false if there is none, or if it must not share a file with this one.
    fn next_source_joins(&mut self, pass: &Pass<'_>) -> Result<bool, Error> {
        let stays_whole = self.begins && self.cutter.ends(&self.tail);
        if !self.ahead()? {
            return Ok(false);
        }
        Ok(pass.dest.is_none() || (stays_whole && self.begins))
    }

    /// Makes sure that the buffer holds a byte, of this source or a later one; false at the end of the last.
    fn ahead(&mut self) -> Result<bool, Error> {
        while self.start == self.end {
            if self.source.is_none() || self.drained {
                let Some(path) = self.paths.next() else { return Ok(false) };
                self.before = self.taken.load(Ordering::Relaxed);
                self.source = Some(Source::open(&path, &self.taken, &mut self.interrupt)?);
                self.drained = false;
                self.scanner = self.cutter.scanner();
                if let Some(content) = &self.content {
                    self.scanner.count_content(content.clone());
                }
                self.read_header()?;
                if self.start < self.end {
                    break;
                }
            }
            self.fill()?;
            self.begins = self.cutter.begins(&self.buffer[..self.end]);
        }
        Ok(true)
    }

    /// Takes the header off the source that was just opened; it is that of the sources before.
    fn read_header(&mut self) -> Result<(), Error> {
        let Some(rule) = self.cutter.header() else { return Ok(()) };
        let mut found = Vec::new();
        let mut is_whole = true;
        loop {
            if self.start == self.end && !self.drained {
                self.fill()?;
                continue;
            }
            let data = &self.buffer[self.start..self.end];
            let goes_on = match rule {
                Header::First => found.is_empty(),
                Header::Byte(byte) => data.first() == Some(&byte),
                Header::Before(start)
                    if is_whole && data.len() < BYTE_ORDER_MARK.len() + start.len() && !self.drained =>
                {
                    self.fill()?;
                    continue;
                }
                // A mark alone before the first record is no header: with it, that record would stand in every batch.
                Header::Before(start) if found.is_empty() => {
                    !data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data).starts_with(start)
                }
                Header::Before(start) => !data.starts_with(start),
            };
            if is_whole && (data.is_empty() || !goes_on) {
                break;
            }
            let step = self.scanner.scan(data, self.drained).map_err(|fault| self.fault(fault))?;
            found.extend_from_slice(&data[..step.len]);
            self.start += step.len;
            is_whole = step.ended;
            if found.len() > MAX_HEADER {
                let problem = format!("the header is longer than {MAX_HEADER} bytes");
                return Err(self.fault(Fault { line: None, problem }));
            }
            if !is_whole && !self.drained {
                self.fill()?;
            }
        }
        if self.header.as_ref().is_some_and(|header| *header != found) {
            let problem = "begins with another header than the source before".to_owned();
            return Err(self.fault(Fault { line: Some(1), problem }));
        }
        self.header = Some(found);
        Ok(())
    }

    /// Whether the next record begins as those of the header do.
    fn is_header_line(&self) -> bool {
        matches!(self.cutter.header(), Some(Header::Byte(byte)) if self.start < self.end && self.buffer[self.start] == byte)
    }

    fn late_header(&self) -> Fault {
        let above = self.header.as_deref().unwrap_or_default();
        Fault {
            line: Some(memchr_iter(b'\n', above).count() as u64 + self.records + 1),
            problem: "a line of the header stands behind the first record, where it is no part of it".to_owned(),
        }
    }

    /// Reads once more from the source, behind what is undecided yet.
    fn fill(&mut self) -> Result<(), Error> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            // A scanner that looks ahead further than the buffer: a few MiB at most.
            self.buffer.resize(2 * self.end, 0);
        }
        let Some(source) = &mut self.source else { return Ok(()) };
        let len = loop {
            match source.read(&mut self.buffer[self.end..]) {
                Ok(len) => break len,
                Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {
                    if (self.interrupt)() {
                        return Err(Error::Interrupted);
                    }
                }
                Err(ReadError::Io(error)) => return Err(Error::io(&source.path, error)),
                Err(ReadError::Damaged(problem)) => return Err(self.fault(Fault { line: None, problem })),
            }
        };
        self.end += len;
        self.drained = len == 0;
        Ok(())
    }

    fn fault(&self, fault: Fault) -> Error {
        let source_path = self.source.as_ref().map_or_else(PathBuf::new, |source| source.path.clone());
        Error::Data { source_path, record: self.records + 1, line: fault.line, problem: fault.problem }
    }
}

/// Keeps the last bytes of the source.
fn keep_tail(tail: &mut Vec<u8>, piece: &[u8]) {
    tail.extend_from_slice(&piece[piece.len().saturating_sub(TAIL)..]);
    tail.drain(..tail.len().saturating_sub(TAIL));
}

/// A batch while it grows.
struct Pass<'a> {
    limits: Limits,
    /// A limit is reached; only records that cannot stand alone may follow.
    full: bool,
    dest: Option<Dest<'a>>,
    batch: Batch,
    /// Bytes of records taken, those of the unfinished one included, and the checksum of all.
    size: u64,
    crc32c: u32,
    /// Cost of the unfinished record, and its letters that count.
    cost: u64,
    content: u64,
    /// Gets all bytes of records.
    hasher: Option<&'a mut RecordHasher>,
}

struct Dest<'a> {
    path: &'a Path,
    file: File,
}

impl Pass<'_> {
    fn new(limits: Limits) -> Self {
        let batch = Batch::default();
        Self { limits, full: false, dest: None, batch, size: 0, crc32c: 0, cost: 0, content: 0, hasher: None }
    }

    /// Begins with the header of the source.
    fn begin(&mut self, header: &[u8]) -> Result<(), Error> {
        self.batch.header = header.len() as u64;
        self.crc32c = crc32c::crc32c(header);
        self.write(header)
    }

    /// Ends a record at `size` bytes; whether the batch is full.
    fn end_record(&mut self, size: u64, is_sufficient: bool) -> bool {
        self.batch.records += 1;
        self.batch.bytes = size;
        self.batch.cost += self.cost;
        self.batch.largest = self.batch.largest.max(self.cost);
        if self.cost > 0 {
            self.batch.smallest = if self.batch.smallest == 0 { self.cost } else { self.batch.smallest.min(self.cost) };
        }
        self.batch.sufficient += u64::from(is_sufficient);
        (self.cost, self.content) = (0, 0);
        self.batch.reaches(self.limits)
    }

    /// Takes a piece of the stream, in which the last whole record ends at `boundary`.
    fn take(&mut self, piece: &[u8], boundary: Option<usize>) -> Result<(), Error> {
        let (whole, rest) = piece.split_at(boundary.unwrap_or(0));
        self.crc32c = crc32c::crc32c_append(self.crc32c, whole);
        if boundary.is_some() {
            self.batch.crc32c = self.crc32c;
        }
        self.crc32c = crc32c::crc32c_append(self.crc32c, rest);
        self.size += piece.len() as u64;
        if let Some(hasher) = &mut self.hasher {
            hasher.update(piece);
        }
        self.write(piece)
    }

    fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        let Some(dest) = &mut self.dest else { return Ok(()) };
        dest.file.write_all(piece).map_err(|error| Error::io(dest.path, error))
    }

    /// Takes the bytes of an unfinished record out of the destination.
    fn cut_back(&mut self) -> Result<(), Error> {
        let Some(dest) = &mut self.dest else { return Ok(()) };
        dest.file.set_len(self.batch.header + self.batch.bytes).map_err(|error| Error::io(dest.path, error))
    }
}
