//! The journals of this and other nodes: one that several threads append to, and many that are read.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::journal::{BlockReader, BlockRef, Journal, JournalError};

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
}

impl SharedJournal {
    /// Shares `journal`, the file at `path`.
    #[must_use]
    pub fn new(journal: Journal, path: Arc<Path>) -> Self {
        Self { journal: Mutex::new(journal), path }
    }

    /// The file.
    #[must_use]
    pub const fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The journal, for this thread alone.
    pub fn lock(&self) -> MutexGuard<'_, Journal> {
        // An append that panicked has not moved the end: the next one writes over what it left.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything appended so far is on disk; then notes that what is before `sure` counts whatever comes.
    /// Others append meanwhile.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn sync(&self, sure: Option<u64>) -> io::Result<()> {
        let (file, end) = self.lock().sync_handle()?;
        file.sync_data()?;
        if let Some(sure) = sure {
            self.lock().synced_to(sure.min(end));
        }
        Ok(())
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
