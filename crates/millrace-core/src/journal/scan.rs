//! Recovery: what a journal holds, whatever happened to it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::JournalError;
use super::frame::{
    self, FILE_HEADER, FILE_MAGIC, FRAME_MAGIC, HEAD, Head, InputDigest, Kind, QUARANTINED, TRAILER, VERSION,
};

/// Where the bytes of one block are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRef {
    /// Output stream.
    pub stream: u16,
    /// Name inside the stream, for streams that are folders; for others what joiners must know of the block, or empty.
    pub name: Vec<u8>,
    /// Offset of the first payload byte in the journal.
    pub offset: u64,
    /// Payload bytes.
    pub length: u64,
    /// CRC-32C of the payload.
    pub crc32c: u32,
}

/// One committed task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRef {
    /// Ordinal of the first record.
    pub first: u64,
    /// Ordinal after the last record.
    pub last: u64,
    /// Database fragment, or another number for what is no result by itself; 0 for a result.
    pub fragment: u32,
    /// The task's records were given up.
    pub quarantined: bool,
    /// What the batch read from each input.
    pub inputs: Vec<InputDigest>,
    /// Its blocks, in the order of their streams.
    pub blocks: Vec<BlockRef>,
}

/// A place where the journal does not hold what was written there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Byte offset in the journal.
    pub offset: u64,
    /// What is wrong, in words.
    pub problem: String,
    /// Whether the bytes were known to be on disk once; if not, a crash explains it.
    pub was_synced: bool,
}

/// What [`scan`] found.
#[derive(Debug)]
pub struct Scan {
    /// The run that the journal belongs to.
    pub run_id: [u8; 16],
    /// Committed tasks with all their blocks whole, in the order of their commits.
    pub tasks: Vec<TaskRef>,
    /// Damaged places.
    pub damage: Vec<Damage>,
    /// Where the last whole frame ends; what follows is torn.
    pub end: u64,
    /// Bytes after `end`.
    pub torn: u64,
    /// What is before this was on disk, and its writer was sure of it; see [`super::Journal::synced_to`].
    pub synced: u64,
    /// Where, in damaged places, the heads of frames stand that would reach beyond the file. In a longer file they would be
    /// frames: who appends takes them away.
    pub(super) unfit: Vec<u64>,
}

/// Reads all frame heads and commits, and with `verify` all payloads.
///
/// # Errors
/// If the file cannot be read, is no journal, or is of another version. Damage inside is reported, not raised.
pub fn scan(path: &Path, verify: bool) -> Result<Scan, JournalError> {
    let mut file = fs_err::File::open(path)?.into_file();
    let size = file.metadata()?.len();
    let mut header = [0; FILE_HEADER];
    file.read_exact(&mut header).map_err(|_| JournalError::NotAJournal(path.into()))?;
    if header[..8] != FILE_MAGIC {
        return Err(JournalError::NotAJournal(path.into()));
    }
    let found = u32::from_le_bytes(frame::field(&header, 8));
    if found != VERSION {
        return Err(JournalError::Version { path: path.into(), found });
    }
    if crc32c::crc32c(&header[..28]) != u32::from_le_bytes(frame::field(&header, 28)) {
        return Err(JournalError::Corrupt {
            path: path.into(),
            offset: 0,
            problem: "the header's checksum is wrong".into(),
        });
    }
    let mut walk = Walk {
        file: &file,
        size,
        verify,
        blocks: HashMap::new(),
        tasks: vec![],
        n_certain: usize::MAX,
        damage: vec![],
        synced: 0,
        unfit: vec![],
    };
    let end = walk.frames()?;
    let tasks = walk.tasks.into_iter().map(|(_, task)| task).collect();
    let (mut damage, synced, mut unfit) = (walk.damage, walk.synced, walk.unfit);
    unfit.retain(|at| *at < end);
    for place in &mut damage {
        place.was_synced = place.offset < synced;
    }
    Ok(Scan { run_id: frame::field(&header, 12), tasks, damage, end, torn: size - end, synced, unfit })
}

/// First and last record, fragment and attempt: the same in all frames of a task.
type TaskId = (u64, u64, u32, u32);

fn task_id(head: &Head) -> TaskId {
    (head.first, head.last, head.fragment, head.attempt)
}

struct Walk<'a> {
    file: &'a File,
    size: u64,
    verify: bool,
    /// Blocks not yet committed, with the task that they are of, by the offset of their frame.
    blocks: HashMap<u64, (TaskId, BlockRef)>,
    /// Committed tasks, with the offset of their commit.
    tasks: Vec<(u64, TaskRef)>,
    /// How many of them are certain: those behind bytes that are no frames may stand in the payload of a damaged block.
    n_certain: usize,
    damage: Vec<Damage>,
    synced: u64,
    /// See [`Scan::unfit`].
    unfit: Vec<u64>,
}

impl Walk<'_> {
    /// Walks all frames; returns the end of the last whole one.
    fn frames(&mut self) -> io::Result<u64> {
        let (mut at, mut end) = (FILE_HEADER as u64, FILE_HEADER as u64);
        while at < self.size {
            match self.head_at(at)? {
                Some((head, payload)) if payload + head.length + TRAILER as u64 <= self.size => {
                    self.frame(at, &head, payload)?;
                    at = payload + head.length + TRAILER as u64;
                    end = at;
                }
                // The writer stopped within this frame. What follows is its payload, in which another journal may stand.
                Some(_) if self.n_certain == usize::MAX => break,
                head => {
                    self.unfit.extend(head.map(|_| at));
                    let Some(next) = self.next_head(at + 1)? else { break };
                    self.damage(at, format!("{} bytes are not what was written", next - at));
                    (at, self.n_certain) = (next, self.n_certain.min(self.tasks.len()));
                }
            }
        }
        Ok(end)
    }

    fn head_at(&self, at: u64) -> io::Result<Option<(Head, u64)>> {
        let mut fixed = [0; HEAD];
        if at + HEAD as u64 > self.size {
            return Ok(None);
        }
        self.file.read_exact_at(&mut fixed, at)?;
        if fixed[..4] != FRAME_MAGIC {
            return Ok(None);
        }
        let mut name = vec![0; Head::name_length(&fixed)];
        let payload = at + HEAD as u64 + name.len() as u64;
        if payload > self.size {
            return Ok(None);
        }
        self.file.read_exact_at(&mut name, at + HEAD as u64)?;
        // A length so large that it overflows can only be damage that met a right checksum: not a frame.
        Ok(Head::decode(&fixed, &name)
            .filter(|head| payload.checked_add(head.length).is_some_and(|end| end < u64::MAX - 8))
            .map(|head| (head, payload)))
    }

    /// The next offset at or after `from` with a valid frame head whose frame fits in the file.
    fn next_head(&mut self, from: u64) -> io::Result<Option<u64>> {
        const WINDOW: usize = 1 << 20;
        let finder = memchr::memmem::Finder::new(&FRAME_MAGIC);
        let mut window = vec![0; WINDOW];
        let mut start = from;
        while start < self.size {
            let n = read_at(self.file, &mut window, start)?;
            for hit in finder.find_iter(&window[..n]) {
                let at = start + hit as u64;
                let Some((head, payload)) = self.head_at(at)? else { continue };
                if payload + head.length + TRAILER as u64 <= self.size {
                    return Ok(Some(at));
                }
                self.unfit.push(at);
            }
            if n < WINDOW {
                break;
            }
            start += (n - FRAME_MAGIC.len() + 1) as u64;
        }
        Ok(None)
    }

    fn frame(&mut self, at: u64, head: &Head, payload: u64) -> io::Result<()> {
        let mut stored = [0; TRAILER];
        self.file.read_exact_at(&mut stored, payload + head.length)?;
        let crc32c = u32::from_le_bytes(stored);
        match head.kind {
            Kind::Block => {
                if self.verify && checksum(self.file, payload, head.length)? != crc32c {
                    let problem = format!(
                        "the block of records {} to {}, stream {}, has a wrong checksum",
                        head.first.saturating_add(1),
                        head.last,
                        head.stream
                    );
                    self.damage(at, problem);
                    return Ok(());
                }
                let block = BlockRef {
                    stream: head.stream,
                    name: head.name.clone(),
                    offset: payload,
                    length: head.length,
                    crc32c,
                };
                self.blocks.insert(at, (task_id(head), block));
            }
            Kind::Commit => self.commit(at, head, payload, crc32c)?,
            Kind::Synced => {
                let mut offset = [0; 8];
                if head.length == 8 {
                    self.file.read_exact_at(&mut offset, payload)?;
                    if crc32c::crc32c(&offset) == crc32c {
                        self.synced = self.synced.max(u64::from_le_bytes(offset));
                    }
                }
            }
        }
        Ok(())
    }

    fn commit(&mut self, at: u64, head: &Head, payload: u64, crc32c: u32) -> io::Result<()> {
        let mut bytes = vec![0; usize::try_from(head.length).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, payload)?;
        let decoded = (crc32c::crc32c(&bytes) == crc32c).then(|| frame::decode_commit(&bytes)).flatten();
        let Some((inputs, frames)) = decoded else {
            self.damage(
                at,
                format!("the commit of records {} to {} has a wrong checksum", head.first.saturating_add(1), head.last),
            );
            return Ok(());
        };
        self.drop_inner_commits(frames.iter().copied().fold(at, u64::min));
        let is_own = |(task, _): &(TaskId, BlockRef)| *task == task_id(head);
        let blocks: Option<Vec<_>> = frames.iter().map(|frame| self.blocks.remove(frame).filter(is_own)).collect();
        self.blocks.clear();
        match blocks {
            Some(blocks) => {
                let task = TaskRef {
                    first: head.first,
                    last: head.last,
                    fragment: head.fragment,
                    quarantined: head.flags & QUARANTINED != 0,
                    inputs,
                    blocks: blocks.into_iter().map(|(_, block)| block).collect(),
                };
                if !task.blocks.is_empty() {
                    self.n_certain = usize::MAX;
                }
                self.tasks.push((at, task));
            }
            None => self.damage(
                at,
                format!(
                    "records {} to {} were committed, but a block of theirs is damaged",
                    head.first.saturating_add(1),
                    head.last
                ),
            ),
        }
        Ok(())
    }

    /// Drops uncertain commits behind `begin`, where the first block of the next commit stands: as nothing else is written
    /// between a task's blocks and its commit, they are of another journal, which is the payload of a damaged block.
    fn drop_inner_commits(&mut self, begin: u64) {
        while self.tasks.len() > self.n_certain && self.tasks.last().is_some_and(|(commit, _)| *commit > begin) {
            self.tasks.pop();
        }
    }

    fn damage(&mut self, offset: u64, problem: String) {
        self.damage.push(Damage { offset, problem, was_synced: false });
    }
}

fn checksum(file: &File, offset: u64, length: u64) -> io::Result<u32> {
    let mut buffer = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(256 << 10)];
    let (mut at, end, mut crc) = (offset, offset + length, 0);
    while at < end {
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        file.read_exact_at(&mut buffer[..want], at)?;
        crc = crc32c::crc32c_append(crc, &buffer[..want]);
        at += want as u64;
    }
    Ok(crc)
}

fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match file.read_at(&mut buffer[n..], offset + n as u64)? {
            0 => break,
            k => n += k,
        }
    }
    Ok(n)
}
