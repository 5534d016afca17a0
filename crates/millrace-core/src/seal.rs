//! Seals: short digests that nobody can make who does not have the key. Nothing here knows what is sealed.

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a seal.
pub const SEAL_BYTES: usize = 16;

/// Seals `content` for a `context`, such as its sender, receiver and number (keyed BLAKE3). The same content has
/// another seal in another context.
///
/// # Examples
///
/// ```
/// use millrace_core::seal::seal;
/// let ours = seal(&[7; 32], b"from 1", b"done");
/// assert_eq!(ours, seal(&[7; 32], b"from 1", b"done"));
/// assert_ne!(ours, seal(&[8; 32], b"from 1", b"done"));
/// assert_ne!(ours, seal(&[7; 32], b"from 1d", b"one"));
/// ```
#[must_use]
pub fn seal(key: &[u8; KEY_BYTES], context: &[u8], content: &[u8]) -> [u8; SEAL_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(context.len() as u64).to_le_bytes());
    hasher.update(context);
    hasher.update(content);
    let mut found = [0; SEAL_BYTES];
    hasher.finalize_xof().fill(&mut found);
    found
}
