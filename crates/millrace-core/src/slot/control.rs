//! What another thread may do to a running task.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::words;

/// What another thread may do to a running task.
#[derive(Debug, Default)]
pub(super) struct Control {
    running: Mutex<Option<libc::pid_t>>,
    pub(super) killed: AtomicBool,
    /// What it writes for people to read.
    words: Mutex<Vec<File>>,
}

impl Control {
    /// Kills the process group of the running task, if any.
    pub(super) fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.signal();
    }

    pub(super) fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    /// Leaves only the beginning and the end of what the running tool has said so far.
    pub(super) fn cut_words(&self) {
        // Where a file cannot be cut, it grows.
        self.words().iter().for_each(|file| drop(words::cut(file)));
    }

    /// The number of the tool that runs; the lock is held while it is used.
    pub(super) fn running(&self) -> MutexGuard<'_, Option<libc::pid_t>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn words(&self) -> MutexGuard<'_, Vec<File>> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn signal(&self) {
        // The lock is held while the number is used, and the process is reaped only after the number is taken away.
        if let Some(pid) = *self.running() {
            // SAFETY: signals a process group whose leader is not reaped yet.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}
