//! Appending: whole tasks or nothing, and a promise of durability in groups.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::JournalError;
use super::frame::{self, FILE_HEADER, FRAME_MAGIC, HEAD, Head, InputDigest, Kind, QUARANTINED, TRAILER};
use super::scan::{BlockRef, Scan, TaskRef, scan};

/// Copy buffer: small enough for the L2 cache, large enough that calls do not count.
const COPY: usize = 256 << 10;

/// What a task is, for its commit frame.
#[derive(Debug, Clone)]
pub struct TaskHead {
    /// Ordinal of the first record.
    pub first: u64,
    /// Ordinal after the last record.
    pub last: u64,
    /// Database fragment, or another number for what is no result by itself; 0 for a result.
    pub fragment: u32,
    /// Which execution of the task this was, from 1.
    pub attempt: u32,
    /// The task's records were given up; there are no blocks.
    pub quarantined: bool,
    /// What the batch read from each input.
    pub inputs: Vec<InputDigest>,
}

/// The bytes of one block to be, as a file whose present length is the block's.
#[derive(Debug)]
pub struct Source {
    /// Output stream.
    pub stream: u16,
    /// Name inside the stream, for streams that are folders; for others what joiners must know of the block, or empty.
    pub name: Vec<u8>,
    /// The bytes, read from offset 0.
    pub file: File,
}

/// A journal open for appending. One process holds it at a time (the run directory's lock sees to that).
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    end: u64,
    synced: u64,
    buffer: Vec<u8>,
}

impl Journal {
    /// Makes a new journal; the header is on disk when this returns. It gets its name only then, so that there is
    /// never a journal without a header.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub fn create(path: &Path, run_id: &[u8; 16]) -> Result<Self, JournalError> {
        if path.try_exists()? {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{}: is there", path.display())).into());
        }
        let mut fresh = path.as_os_str().to_owned();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let mut file = fs_err::OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?.into_file();
        file.write_all(&frame::encode_file_header(run_id))
            .and_then(|()| file.sync_all())
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
        fs_err::rename(&fresh, path)?;
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs_err::File::open(folder)?.into_file().sync_all()?;
        }
        Ok(Self { file, path: path.into(), end: FILE_HEADER as u64, synced: FILE_HEADER as u64, buffer: vec![0; COPY] })
    }

    /// Opens an existing journal: verifies every checksum, cuts a torn tail, and appends from there.
    ///
    /// # Errors
    /// If it is no journal, of another version or run, or cannot be read.
    pub fn open(path: &Path, run_id: &[u8; 16]) -> Result<(Self, Scan), JournalError> {
        let found = scan(path, true)?;
        if found.run_id != *run_id {
            return Err(JournalError::OtherRun(path.into()));
        }
        let mut file = fs_err::OpenOptions::new().write(true).open(path)?.into_file();
        // The tail after the last whole frame was never committed: cut, so that appending starts clean.
        file.set_len(found.end)?;
        for at in &found.unfit {
            file.write_all_at(&[0; FRAME_MAGIC.len()], *at)?;
        }
        file.seek(SeekFrom::Start(found.end))?;
        file.sync_data()?;
        let journal = Self { file, path: path.into(), end: found.end, synced: found.end, buffer: vec![0; COPY] };
        Ok((journal, found))
    }

    /// Appends all blocks of a task and its commit. On an error the file is as it was before.
    ///
    /// # Errors
    /// If writing fails (disk full) or a source cannot be read.
    pub fn append(&mut self, task: &TaskHead, blocks: &mut [Source]) -> Result<TaskRef, JournalError> {
        let start = self.end;
        let appended = self.append_frames(task, blocks);
        if appended.is_err() {
            self.cut_back(start);
        }
        appended.map_err(|error| {
            let size: u64 = blocks.iter().filter_map(|block| Some(block.file.metadata().ok()?.len())).sum();
            let needs =
                if is_full(&error) { format!(" ({size} bytes are needed for the next result)") } else { String::new() };
            io::Error::new(error.kind(), format!("{}: {error}{needs}", self.path.display())).into()
        })
    }

    /// Forgets what was written after `start`.
    fn cut_back(&mut self, start: u64) {
        // Best effort: should the cut fail, the next open finds frames without a commit and ignores them.
        let _ = self.file.set_len(start);
        let _ = self.file.seek(SeekFrom::Start(start));
        self.end = start;
    }

    fn append_frames(&mut self, task: &TaskHead, blocks: &mut [Source]) -> io::Result<TaskRef> {
        let mut refs = Vec::with_capacity(blocks.len());
        let mut frames = Vec::with_capacity(blocks.len());
        for block in blocks {
            frames.push(self.end);
            refs.push(self.append_block(task, block)?);
        }
        let payload = frame::encode_commit(&task.inputs, &frames);
        let head = Head {
            flags: if task.quarantined { QUARANTINED } else { 0 },
            ..head(task, Kind::Commit, payload.len() as u64)
        };
        self.append_small(&head, &payload)?;
        Ok(TaskRef {
            first: task.first,
            last: task.last,
            fragment: task.fragment,
            quarantined: task.quarantined,
            inputs: task.inputs.clone(),
            blocks: refs,
        })
    }

    fn append_block(&mut self, task: &TaskHead, block: &mut Source) -> io::Result<BlockRef> {
        let length = block.file.metadata()?.len();
        let head = Head { stream: block.stream, name: block.name.clone(), ..head(task, Kind::Block, length) };
        if length <= COPY as u64 {
            let mut payload = std::mem::take(&mut self.buffer);
            block.file.seek(SeekFrom::Start(0))?;
            let crc = block
                .file
                .read_exact(&mut payload[..length as usize])
                .and_then(|()| self.append_small(&head, &payload[..length as usize]));
            self.buffer = payload;
            let crc32c = crc?;
            return Ok(BlockRef {
                stream: block.stream,
                name: block.name.clone(),
                offset: self.end - length - TRAILER as u64,
                length,
                crc32c,
            });
        }
        let bytes = head.encode();
        self.file.write_all(&bytes)?;
        let crc = self.copy(&mut block.file, length)?;
        self.file.write_all(&crc.to_le_bytes())?;
        let offset = self.end + bytes.len() as u64;
        self.end = offset + length + TRAILER as u64;
        Ok(BlockRef { stream: block.stream, name: block.name.clone(), offset, length, crc32c: crc })
    }

    fn copy(&mut self, from: &mut File, length: u64) -> io::Result<u32> {
        from.seek(SeekFrom::Start(0))?;
        let (mut left, mut crc) = (length, 0);
        while left > 0 {
            let want = COPY.min(usize::try_from(left).unwrap_or(COPY));
            let n = from.read(&mut self.buffer[..want])?;
            if n == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "an output shrank while it was read"));
            }
            crc = crc32c::crc32c_append(crc, &self.buffer[..n]);
            self.file.write_all(&self.buffer[..n])?;
            left -= n as u64;
        }
        Ok(crc)
    }

    fn append_small(&mut self, head: &Head, payload: &[u8]) -> io::Result<u32> {
        let mut bytes = head.encode();
        let crc = crc32c::crc32c(payload);
        bytes.reserve(payload.len() + TRAILER);
        bytes.extend(payload);
        bytes.extend(crc.to_le_bytes());
        self.file.write_all(&bytes)?;
        self.end += bytes.len() as u64;
        Ok(crc)
    }

    /// Where the next frame begins.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes appended since the last [`Journal::synced_to`].
    #[must_use]
    pub fn unsynced(&self) -> u64 {
        self.end - self.synced
    }

    /// A second handle on the file and the present end, to sync without holding the journal.
    ///
    /// # Errors
    /// If the handle cannot be made.
    pub fn sync_handle(&self) -> io::Result<(File, u64)> {
        Ok((self.file.as_fd().try_clone_to_owned()?.into(), self.end))
    }

    /// Notes that everything before `offset` is on disk, and that the writer is sure of it. No harm if the note cannot be written: what it tells
    /// is only whether damage found later can be a crash's, and what [`forget_unsynced`] has to leave.
    pub fn synced_to(&mut self, offset: u64) {
        let none = TaskHead { first: 0, last: 0, fragment: 0, attempt: 0, quarantined: false, inputs: vec![] };
        let start = self.end;
        if self.append_small(&head(&none, Kind::Synced, 8), &offset.to_le_bytes()).is_err() {
            self.cut_back(start);
        }
        // The note itself need not be on disk; count only what came after the sync.
        self.synced = offset + (self.end - start);
    }
}

/// Cuts off what its writer was not yet sure of when it ended. Only while nobody has the journal open to append.
///
/// # Errors
/// If it is no journal, or cannot be read or written.
pub fn forget_unsynced(path: &Path) -> Result<(), JournalError> {
    let found = scan(path, false)?;
    let sure = found.synced.max(FILE_HEADER as u64);
    if sure >= found.end + found.torn {
        return Ok(());
    }
    let mut file = fs_err::OpenOptions::new().write(true).open(path)?.into_file();
    file.set_len(sure)?;
    file.seek(SeekFrom::Start(sure))?;
    let mut journal = Journal { file, path: path.into(), end: sure, synced: sure, buffer: vec![] };
    // What told that it is sure may have been behind it.
    journal.synced_to(sure);
    journal.file.sync_data()?;
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

fn head(task: &TaskHead, kind: Kind, length: u64) -> Head {
    Head {
        kind,
        flags: 0,
        stream: 0,
        first: task.first,
        last: task.last,
        fragment: task.fragment,
        attempt: task.attempt,
        length,
        name: vec![],
    }
}

const _: () = assert!(HEAD == 48);
