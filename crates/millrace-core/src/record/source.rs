//! Opens a source and takes off its compression, whatever its name.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::GzDecoder;

use super::error::Error;

/// Bytes that tell a compression: those of BGZF are the longest.
const MAGIC: usize = 18;

/// Bytes that a decompressor reads at once.
const COMPRESSED_BUFFER: usize = 128 << 10;

/// Bytes that are unpacked before they are asked for, of a file: a decompressor may have taken the whole of a small file
/// before it gives its first byte, and the end must be seen before it is there.
const AHEAD: usize = 2 << 20;

/// Bytes that are unpacked ahead at a time.
const CHUNK: usize = 64 << 10;

/// How a source is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    Plain,
    Gzip,
    /// Gzip in blocks that say their size.
    Bgzf,
    Zstd,
    Bzip2,
    Xz,
}

impl Codec {
    /// Tells the compression by the first bytes.
    fn detect(head: &[u8]) -> Self {
        let is_zstd = |head: &[u8]| {
            let is_skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18];
            head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || is_skippable
        };
        match head {
            [0x1f, 0x8b, 8, 4, _, _, _, _, _, _, 6, 0, b'B', b'C', 2, 0, ..] => Self::Bgzf,
            [0x1f, 0x8b, 8, ..] => Self::Gzip,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Self::Xz,
            // "BZh9" could be text: a block or the end of the stream must follow.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => Self::Bzip2,
            head if is_zstd(head) => Self::Zstd,
            _ => Self::Plain,
        }
    }

    /// Of a compression; empty: there is none.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Gzip => "gzip",
            Self::Bgzf => "bgzf",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
        }
    }
}

/// Name of the compression that the first bytes of a file tell; empty: it is not compressed.
#[must_use]
pub fn compression(head: &[u8]) -> &'static str {
    Codec::detect(head).name()
}

/// One open source, read as if it were not compressed.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) codec: Codec,
    reader: Box<dyn Read + Send>,
    /// Of a compressed file.
    ahead: Option<Ahead>,
    /// A second member of gzip was seen.
    pub(crate) has_more: Arc<AtomicBool>,
}

/// What is unpacked of a file, and was not asked for yet.
struct Ahead {
    bytes: VecDeque<u8>,
    chunk: Vec<u8>,
    /// Bytes of the file, and how many of them the decompressor has taken.
    size: u64,
    taken: Arc<AtomicU64>,
    /// Bytes that were given out, unpacked.
    given: u64,
    /// The most that was told of that.
    told: AtomicU64,
    /// All is unpacked.
    is_over: bool,
    /// What ended that, for when the bytes before it are given out.
    error: Option<io::Error>,
}

impl Ahead {
    fn read(&mut self, reader: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
        let mut n = self.bytes.read(buffer)?;
        if n == 0 {
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            n = if self.is_over { 0 } else { reader.read(buffer)? };
            self.is_over |= n == 0 && !buffer.is_empty();
        }
        self.given += n as u64;
        // As much again as was asked for so far: the first bytes do not wait for more.
        let wanted = AHEAD.min(usize::try_from(self.given).unwrap_or(AHEAD));
        while !self.is_over && self.error.is_none() && self.bytes.len() < wanted {
            match reader.read(&mut self.chunk) {
                Ok(0) => self.is_over = true,
                Ok(more) => self.bytes.extend(&self.chunk[..more]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => break,
                Err(error) => self.error = Some(error),
            }
        }
        Ok(n)
    }

    /// Which part of the file was given out but for `rest` bytes, as if all of it were compressed as well as what was seen.
    fn position(&self, rest: u64) -> u64 {
        let taken = if self.is_over { self.size } else { self.taken.load(Ordering::Relaxed).min(self.size) };
        let unpacked = self.given + self.bytes.len() as u64;
        let position = u128::from(taken) * u128::from(self.given.saturating_sub(rest)) / u128::from(unpacked.max(1));
        let position = u64::try_from(position).unwrap_or(taken);
        self.told.fetch_max(position, Ordering::Relaxed).max(position)
    }
}

/// Why a read gave nothing.
pub(crate) enum ReadError {
    /// The system said so.
    Io(io::Error),
    /// The compressed data is damaged or cut off.
    Damaged(String),
}

impl Source {
    /// Opens `path` ("-" is standard input) and reads its first bytes, which tell the compression.
    ///
    /// Bytes read from the file itself are added to `taken`; `is_stop` is asked when a signal arrives.
    pub(crate) fn open(path: &Path, taken: &Arc<AtomicU64>, is_stop: &mut dyn FnMut() -> bool) -> Result<Self, Error> {
        let file = open(path).map_err(|error| Error::io(path, error))?;
        let about = file.metadata().map_err(|error| Error::io(path, error))?;
        let mut file = Counted { file, taken: Arc::clone(taken) };
        let head = read_head(&mut file, is_stop).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Error::Interrupted,
            _ => Error::io(path, error),
        })?;
        // A program that packs never writes nothing: whoever wrote this was stopped before its first byte.
        let is_cut = head.is_empty() && path.extension().is_some_and(|suffix| suffix == "gz");
        let codec = if is_cut { Codec::Gzip } else { Codec::detect(&head) };
        let raw = Cursor::new(head).chain(file);
        let (taken, has_more) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let buffered =
            |raw| Consumed { reader: BufReader::with_capacity(COMPRESSED_BUFFER, raw), taken: Arc::clone(&taken) };
        let reader: Box<dyn Read + Send> = match codec {
            Codec::Plain => Box::new(raw),
            Codec::Gzip | Codec::Bgzf => {
                Box::new(Members { member: Some(GzDecoder::new(buffered(raw))), has_more: Arc::clone(&has_more) })
            }
            Codec::Zstd => Box::new(
                zstd::stream::read::Decoder::with_buffer(buffered(raw)).map_err(|error| Error::io(path, error))?,
            ),
            Codec::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(buffered(raw))),
            Codec::Xz => Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(buffered(raw))),
        };
        let ahead = (codec != Codec::Plain && about.is_file()).then(|| Ahead {
            bytes: VecDeque::new(),
            chunk: vec![0; CHUNK],
            size: about.len(),
            taken,
            given: 0,
            told: AtomicU64::new(0),
            is_over: false,
            error: None,
        });
        Ok(Self { path: path.to_owned(), codec, reader, ahead, has_more })
    }

    /// Bytes of a compressed file whose content was read, but for the last `rest` bytes of that; None: it is no such file.
    pub(crate) fn position(&self, rest: usize) -> Option<u64> {
        self.ahead.as_ref().map(|ahead| ahead.position(rest as u64))
    }

    /// Reads some bytes; 0 is the end. A signal shows as `ErrorKind::Interrupted`, and reading may go on.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ReadError> {
        let found = match &mut self.ahead {
            Some(ahead) => ahead.read(&mut *self.reader, buffer),
            None => self.reader.read(buffer),
        };
        found.map_err(|error| {
            let is_system = error.raw_os_error().is_some() || error.kind() == io::ErrorKind::Interrupted;
            if self.codec == Codec::Plain || is_system {
                return ReadError::Io(error);
            }
            let what = if error.kind() == io::ErrorKind::UnexpectedEof { "cut off" } else { "damaged" };
            let name = if self.codec == Codec::Bgzf { Codec::Gzip.name() } else { self.codec.name() };
            ReadError::Damaged(format!("the {name} data is {what}: {error}"))
        })
    }
}

/// The members of a gzip file one after the other. As for `gzip`, what follows the last one may be zeros, as tapes and
/// block devices leave them.
struct Members<R: BufRead> {
    member: Option<GzDecoder<R>>,
    has_more: Arc<AtomicBool>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let n = member.read(buffer)?;
            if n > 0 || buffer.is_empty() {
                return Ok(n);
            }
            let rest = member.get_mut();
            if !skip_zeros(rest)? {
                self.member = None;
            } else if rest.fill_buf()?.first() != Some(&0x1f) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "what follows its end is no gzip data"));
            } else if let Some(member) = self.member.take() {
                self.has_more.store(true, Ordering::Relaxed);
                self.member = Some(GzDecoder::new(member.into_inner()));
            }
        }
        Ok(0)
    }
}

/// Passes over zeros; whether anything follows them.
fn skip_zeros(reader: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let data = reader.fill_buf()?;
        let n = data.iter().take_while(|&&byte| byte == 0).count();
        let (is_end, is_done) = (data.is_empty(), n < data.len());
        reader.consume(n);
        if is_end || is_done {
            return Ok(is_done);
        }
    }
}

/// Bytes of all `paths`, None if one is not a regular file. Opens nothing, as opening a FIFO waits.
pub(crate) fn total_size(paths: &[PathBuf]) -> Result<Option<u64>, Error> {
    let mut total = Some(0);
    for path in paths {
        let metadata = match is_stdin(path) {
            true => standard_input().and_then(|file| file.metadata()),
            false => std::fs::metadata(path),
        };
        let metadata = metadata.map_err(|error| Error::io(path, error))?;
        total = total.filter(|_| metadata.is_file()).map(|sum: u64| sum + metadata.len());
    }
    Ok(total)
}

fn open(path: &Path) -> io::Result<File> {
    if is_stdin(path) { standard_input() } else { File::open(path) }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// File descriptor 0 without the buffer of `std::io::stdin`, which would keep bytes to itself.
fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn read_head(file: &mut impl Read, is_stop: &mut dyn FnMut() -> bool) -> io::Result<Vec<u8>> {
    let mut head = vec![0; MAGIC];
    let mut len = 0;
    while len < MAGIC {
        match file.read(&mut head[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted && !is_stop() => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(len);
    Ok(head)
}

/// Counts what was taken of what is buffered.
struct Consumed<R> {
    reader: BufReader<R>,
    taken: Arc<AtomicU64>,
}

impl<R: Read> Read for Consumed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl<R: Read> BufRead for Consumed<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.taken.fetch_add(n as u64, Ordering::Relaxed);
        self.reader.consume(n);
    }
}

/// A file that counts what is read from it.
struct Counted {
    file: File,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(buffer)?;
        self.taken.fetch_add(len as u64, Ordering::Relaxed);
        Ok(len)
    }
}
