//! Compressing records as the input is that they come from.

use std::io::{self, Read, Write};

use super::source::Codec;

/// How a batch is compressed for a tool that gets its input as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packing {
    codec: Codec,
    /// To other bytes than the first time, from which the same come out: a tool that shows them gives itself away.
    again: bool,
}

impl Packing {
    /// By the name of the compression, as [`super::Reader::compression`] has it; None: there is no such.
    #[must_use]
    pub fn new(compression: &str, again: bool) -> Option<Self> {
        let codec = [Codec::Gzip, Codec::Zstd, Codec::Bzip2, Codec::Xz]
            .into_iter()
            .find(|codec| codec.name() == compression)?;
        Some(Self { codec, again })
    }

    /// Compresses all of `from` into `to`, with little work: it is unpacked at once.
    ///
    /// # Errors
    /// If reading or writing fails.
    pub fn pack(self, from: &mut impl Read, to: impl Write) -> io::Result<()> {
        let level = u32::from(self.again);
        match self.codec {
            Codec::Plain => unreachable!("is no compression"),
            Codec::Gzip => {
                let mut packer = flate2::write::GzEncoder::new(to, flate2::Compression::new(level));
                io::copy(from, &mut packer)?;
                packer.finish()?.flush()
            }
            Codec::Zstd => {
                let mut packer = zstd::stream::write::Encoder::new(to, 1)?;
                packer.include_checksum(self.again)?;
                io::copy(from, &mut packer)?;
                packer.finish()?.flush()
            }
            Codec::Bzip2 => {
                let mut packer = bzip2::write::BzEncoder::new(to, bzip2::Compression::new(level + 1));
                io::copy(from, &mut packer)?;
                packer.finish()?.flush()
            }
            Codec::Xz => {
                let mut packer = liblzma::write::XzEncoder::new(to, level);
                io::copy(from, &mut packer)?;
                packer.finish()?.flush()
            }
        }
    }
}
