//! Bytes made smaller: fast, for a slow network; or as small as they get, for what is kept or sent far. Nothing here
//! knows what they mean.

use std::io::{self, Read, Write};

use zstd::zstd_safe::CParameter;

/// Fast rather than small: what takes longer to compress than to send is sent as it is.
const LEVEL: i32 = 1;

/// Log of the largest window that is ever used: 128 MiB, which any decompressor that was asked for long windows takes.
const MOST_WINDOW: u32 = 27;

/// Compresses `data` (zstd).
///
/// # Errors
///
/// There is no memory.
///
/// # Examples
///
/// ```
/// let packed = millrace_core::pack::pack(&[7; 1000])?;
/// assert!(packed.len() < 100);
/// assert_eq!(millrace_core::pack::unpack(&packed)?, [7; 1000]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn pack(data: &[u8]) -> io::Result<Vec<u8>> {
    zstd::bulk::compress(data, LEVEL)
}

/// What `pack` was given.
///
/// # Errors
///
/// `packed` is not what `pack` made, or there is no memory.
pub fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    zstd::stream::decode_all(packed)
}

/// Compresses `data` as far as `level` goes, with matches as far back as the data reaches, also into `reference`.
///
/// # Errors
///
/// There is no memory, or no such level.
///
/// # Examples
///
/// ```
/// use millrace_core::pack::{restore, squeeze};
/// let reference: Vec<u8> = (0..5000_u32).flat_map(|n| (n * n).to_le_bytes()).collect();
/// let mut data = reference.clone();
/// data[7777] ^= 1;
/// let packed = squeeze(&data, 19, &reference)?;
/// assert!(packed.len() < 100);
/// assert_eq!(restore(&packed, &reference, data.len())?, data);
/// assert!(restore(&packed, &reference, data.len() - 1).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn squeeze(data: &[u8], level: i32, reference: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::stream::write::Encoder::with_ref_prefix(Vec::new(), level, reference)?;
    let reach = (data.len() + reference.len()).max(1).next_power_of_two().trailing_zeros();
    encoder.set_parameter(CParameter::WindowLog(reach.clamp(10, MOST_WINDOW)))?;
    encoder.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
    encoder.set_parameter(CParameter::ContentSizeFlag(true))?;
    encoder.set_pledged_src_size(Some(data.len() as u64))?;
    encoder.write_all(data)?;
    encoder.finish()
}

/// What `squeeze` was given, of which there are `length` bytes.
///
/// # Errors
///
/// `packed` is not what `squeeze` made with this reference, or it has another length; no more memory is taken than for
/// `length` bytes and a window.
pub fn restore(packed: &[u8], reference: &[u8], length: usize) -> io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_ref_prefix(packed, reference)?.single_frame();
    decoder.window_log_max(MOST_WINDOW)?;
    let mut data = Vec::new();
    decoder.by_ref().take(length as u64 + 1).read_to_end(&mut data)?;
    if data.len() != length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "packed bytes have another length than was said"));
    }
    if !decoder.finish().is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "something follows the packed bytes"));
    }
    Ok(data)
}
