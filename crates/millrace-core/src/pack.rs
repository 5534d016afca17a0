//! Bytes made smaller for a slow network. Nothing here knows what they mean.

use std::io;

/// Fast rather than small: what takes longer to compress than to send is sent as it is.
const LEVEL: i32 = 1;

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
