//! The journals of this and other nodes: one that several threads append to, and many that are read.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::journal::{BlockReader, BlockRef, Journal, JournalError, Source, TaskHead, TaskRef};

/// How long a journal may look shorter than its node says.
const SEEN_WITHIN: Duration = Duration::from_secs(10);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Journals that are open at once: each start of each node has one, and each output reads them all.
pub(super) const MOST_OPEN: usize = 64;

/// A block, and the journal that it is in.
#[derive(Clone, Debug)]
pub struct StoredBlock {
    /// Where in the journal it is.
    pub block: BlockRef,
    /// The journal.
    pub journal: Arc<Path>,
}

/// A journal open for appending by several threads.
#[derive(Debug)]
pub struct SharedJournal {
    journal: Mutex<Journal>,
    path: Arc<Path>,
    /// As they were after the last whole task: who asks does not wait for a thread that appends, which on a network
    /// filesystem may take long.
    end: AtomicU64,
    unsynced: AtomicU64,
}

impl SharedJournal {
    /// Shares `journal`, the file at `path`.
    #[must_use]
    pub fn new(journal: Journal, path: Arc<Path>) -> Self {
        let (end, unsynced) = (journal.end().into(), journal.unsynced().into());
        Self { journal: Mutex::new(journal), path, end, unsynced }
    }

    /// The file.
    #[must_use]
    pub const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// Where the next task will be. Never waits: of one that is being appended it knows nothing.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    /// Bytes of whole tasks that are not yet known to be on disk. Never waits.
    pub fn unsynced(&self) -> u64 {
        self.unsynced.load(Ordering::Acquire)
    }

    /// Appends all blocks of a task and its commit; see [`Journal::append`].
    ///
    /// # Errors
    /// If writing fails (disk full) or a source cannot be read.
    pub fn append(&self, task: &TaskHead, blocks: &mut [Source]) -> Result<TaskRef, JournalError> {
        self.alone(|journal| journal.append(task, blocks))
    }

    /// Waits until everything appended so far is on disk; then notes that what is before `sure` counts whatever comes.
    /// Others append meanwhile.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self, sure: Option<u64>) -> io::Result<()> {
        let (file, end) = self.alone(|journal| journal.sync_handle())?;
        file.sync_data()?;
        if let Some(sure) = sure {
            self.alone(|journal| journal.synced_to(sure.min(end)));
        }
        Ok(())
    }

    /// What `work` makes of the journal, which this thread has for itself.
    pub(super) fn alone<T>(&self, work: impl FnOnce(&mut Journal) -> T) -> T {
        // An append that panicked has not moved the end: the next one writes over what it left.
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut journal);
        self.end.store(journal.end(), Ordering::Release);
        self.unsynced.store(journal.unsynced(), Ordering::Release);
        done
    }
}

/// The journals of all nodes, opened when a block of theirs is asked for. The latest that were asked for stay open.
#[derive(Debug, Default)]
pub struct Journals(VecDeque<(Arc<Path>, BlockReader)>);

impl Journals {
    /// Returns a reader of the journal that holds the block, and waits for it if need be.
    ///
    /// A node tells of a block once it is in its journal, but a client of a network filesystem may go on for a few
    /// seconds with the size that it knew: opened anew, it asks the server.
    ///
    /// # Errors
    /// If the journal cannot be opened.
    pub fn holding(&mut self, stored: &StoredBlock) -> io::Result<&BlockReader> {
        let StoredBlock { block, journal } = stored;
        let end = block.offset + block.length;
        let begun = Instant::now();
        let at = self.0.iter().position(|(path, _)| path == journal);
        let mut reader = match at.and_then(|at| self.0.remove(at)) {
            Some((_, reader)) => reader,
            None => open(journal)?,
        };
        while reader.size() < end && begun.elapsed() < SEEN_WITHIN {
            thread::sleep(LOOK_AGAIN);
            reader = open(journal)?;
        }
        // If it is still too short, reading tells that the block is cut off.
        self.0.truncate(MOST_OPEN - 1);
        self.0.push_front((journal.clone(), reader));
        Ok(&self.0[0].1)
    }
}

fn open(journal: &Path) -> io::Result<BlockReader> {
    BlockReader::open(journal).map_err(JournalError::into_io)
}
