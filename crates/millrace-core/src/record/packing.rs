//! Compressing records as the input is that they come from.

use std::io::{self, Read, Write};

use flate2::{Compression, Crc, GzBuilder, write::DeflateEncoder};
use liblzma::stream::{Check, Stream};

use super::source::Codec;

/// Most bytes of a block of BGZF, as its makers choose it (SAM format specification, 4.1).
const BLOCK: u64 = 65_280;

/// What a file of BGZF ends with: a block of nothing.
const BGZF_END: [u8; 28] = [31, 139, 8, 4, 0, 0, 0, 0, 0, 255, 6, 0, 66, 67, 2, 0, 27, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// To which bytes the same is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// To some.
    First,
    /// To others, of another size, so that a tool that shows them gives itself away.
    Again,
    /// As `Again`, in two members where one would do: a tool that reads the first alone gives itself away, too.
    Members,
}

/// How a batch is compressed for a tool that gets its input as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    codec: Codec,
    form: Form,
}

impl Packing {
    /// By the name of the compression, as [`super::Reader::compression`] has it; None: there is no such.
    #[must_use]
    pub fn new(compression: &str, form: Form) -> Option<Self> {
        let known = [Codec::Gzip, Codec::Bgzf, Codec::Zstd, Codec::Bzip2, Codec::Xz];
        Some(Self { codec: known.into_iter().find(|codec| codec.name() == compression)?, form })
    }

    /// Compresses all of `from`, which are `size` bytes, into `to`, with little work: it is unpacked at once.
    ///
    /// # Errors
    /// If reading or writing fails.
    pub fn pack(self, mut from: impl Read, size: u64, mut to: impl Write) -> io::Result<()> {
        let is_first = self.form == Form::First;
        let mut half = (&mut from).take(size / 2);
        match self.codec {
            Codec::Plain => unreachable!("is no compression"),
            Codec::Gzip if self.form == Form::Members => {
                gzip(&mut half, &mut to, 1)?;
                gzip(from, &mut to, 1)?;
            }
            Codec::Gzip => gzip(from, &mut to, u32::from(!is_first))?,
            Codec::Bgzf => {
                let block = if is_first { BLOCK } else { (size / 3).clamp(1, BLOCK / 2) };
                let mut bytes = Vec::new();
                while (&mut from).take(block).read_to_end(&mut bytes)? > 0 {
                    bgzf(&bytes, &mut to, u32::from(!is_first))?;
                    bytes.clear();
                }
                to.write_all(&BGZF_END)?;
            }
            Codec::Zstd => {
                let mut packer = zstd::stream::write::Encoder::new(&mut to, 1)?;
                packer.set_pledged_src_size(Some(size))?;
                packer.include_checksum(!is_first)?;
                if !is_first {
                    io::copy(&mut half, &mut packer)?;
                    packer.flush()?; // another block: what stands in it as it is ends here
                }
                io::copy(&mut from, &mut packer)?;
                packer.finish()?;
            }
            Codec::Bzip2 => {
                if !is_first {
                    bzip2(&mut half, &mut to)?;
                }
                bzip2(from, &mut to)?;
            }
            Codec::Xz => {
                let check = if is_first { Check::Crc64 } else { Check::Crc32 };
                let mut packer = liblzma::write::XzEncoder::new_stream(&mut to, Stream::new_easy_encoder(0, check)?);
                if !is_first {
                    io::copy(&mut half, &mut packer)?;
                    packer.flush()?;
                }
                io::copy(&mut from, &mut packer)?;
                packer.finish()?;
            }
        }
        to.flush()
    }
}

/// One member; `level` 0 leaves the bytes as they are.
fn gzip(mut from: impl Read, to: impl Write, level: u32) -> io::Result<()> {
    // A time that nobody has: who shows it gives himself away.
    let mut packer = GzBuilder::new().mtime(level).write(to, Compression::new(level));
    io::copy(&mut from, &mut packer)?;
    packer.finish().map(drop)
}

fn bgzf(bytes: &[u8], to: &mut impl Write, level: u32) -> io::Result<()> {
    let mut packer = DeflateEncoder::new(Vec::new(), Compression::new(level));
    packer.write_all(bytes)?;
    let packed = packer.finish()?;
    let size = u16::try_from(packed.len() + 25).map_err(io::Error::other)?;
    let mut crc = Crc::new();
    crc.update(bytes);
    to.write_all(&BGZF_END[..16])?;
    to.write_all(&size.to_le_bytes())?;
    to.write_all(&packed)?;
    to.write_all(&crc.sum().to_le_bytes())?;
    to.write_all(&crc.amount().to_le_bytes())
}

fn bzip2(mut from: impl Read, to: impl Write) -> io::Result<()> {
    let mut packer = bzip2::write::BzEncoder::new(to, bzip2::Compression::fast());
    io::copy(&mut from, &mut packer)?;
    packer.finish().map(drop)
}
