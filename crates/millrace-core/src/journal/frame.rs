//! Frames as bytes, and nothing else.

/// Layout version of the file; a reader refuses any other.
pub const VERSION: u32 = 1;

pub(super) const FILE_MAGIC: [u8; 8] = *b"MRJOURNL";
pub(super) const FILE_HEADER: usize = 32;
pub(super) const FRAME_MAGIC: [u8; 4] = *b"MRF1";
pub(super) const HEAD: usize = 48;
pub(super) const TRAILER: usize = 4;

pub(super) const QUARANTINED: u8 = 1;

/// Length and checksum of what a batch read from one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputDigest {
    /// Bytes of the batch in this input.
    pub bytes: u64,
    /// CRC-32C of those bytes.
    pub crc32c: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Block = 1,
    Commit = 2,
    Synced = 3,
}

/// The fixed part of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) flags: u8,
    pub(super) stream: u16,
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) fragment: u32,
    pub(super) attempt: u32,
    pub(super) length: u64,
    pub(super) name: Vec<u8>,
}

impl Head {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.name.len());
        bytes.extend(FRAME_MAGIC);
        bytes.push(self.kind as u8);
        bytes.push(self.flags);
        bytes.extend(self.stream.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.last.to_le_bytes());
        bytes.extend(self.fragment.to_le_bytes());
        bytes.extend(self.attempt.to_le_bytes());
        bytes.extend(self.length.to_le_bytes());
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &self.name);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(&self.name);
        bytes
    }

    /// How many bytes of name follow the fixed part `head`.
    pub(super) fn name_length(head: &[u8; HEAD]) -> usize {
        usize::from(u16::from_le_bytes([head[40], head[41]]))
    }

    /// Reads a head; `None` if magic, kind or checksum are wrong.
    pub(super) fn decode(head: &[u8; HEAD], name: &[u8]) -> Option<Self> {
        if head[..4] != FRAME_MAGIC {
            return None;
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..44]), name);
        if crc != u32::from_le_bytes(field(head, 44)) {
            return None;
        }
        let kind = match head[4] {
            1 => Kind::Block,
            2 => Kind::Commit,
            3 => Kind::Synced,
            _ => return None,
        };
        Some(Self {
            kind,
            flags: head[5],
            stream: u16::from_le_bytes(field(head, 6)),
            first: u64::from_le_bytes(field(head, 8)),
            last: u64::from_le_bytes(field(head, 16)),
            fragment: u32::from_le_bytes(field(head, 24)),
            attempt: u32::from_le_bytes(field(head, 28)),
            length: u64::from_le_bytes(field(head, 32)),
            name: name.to_vec(),
        })
    }
}

pub(super) fn encode_file_header(run_id: &[u8; 16]) -> [u8; FILE_HEADER] {
    let mut bytes = [0; FILE_HEADER];
    bytes[..8].copy_from_slice(&FILE_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..28].copy_from_slice(run_id);
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

pub(super) fn encode_commit(inputs: &[InputDigest], frames: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + 12 * inputs.len() + 8 * frames.len());
    bytes.extend((inputs.len() as u16).to_le_bytes());
    for input in inputs {
        bytes.extend(input.bytes.to_le_bytes());
        bytes.extend(input.crc32c.to_le_bytes());
    }
    bytes.extend((frames.len() as u32).to_le_bytes());
    for frame in frames {
        bytes.extend(frame.to_le_bytes());
    }
    bytes
}

pub(super) fn decode_commit(payload: &[u8]) -> Option<(Vec<InputDigest>, Vec<u64>)> {
    let mut rest = payload;
    let inputs = (0..u16::from_le_bytes(take(&mut rest)?))
        .map(|_| {
            Some(InputDigest {
                bytes: u64::from_le_bytes(take(&mut rest)?),
                crc32c: u32::from_le_bytes(take(&mut rest)?),
            })
        })
        .collect::<Option<Vec<_>>>()?;
    let frames = (0..u32::from_le_bytes(take(&mut rest)?))
        .map(|_| take(&mut rest).map(u64::from_le_bytes))
        .collect::<Option<Vec<_>>>()?;
    rest.is_empty().then_some((inputs, frames))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}

/// The `N` bytes at `at`; the callers' constants keep it inside the head.
pub(super) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}
