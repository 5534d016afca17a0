//! The mark by which the processes of a run are known, whatever they do to leave it.
//!
//! What a tool starts may have another group, session, parent and environment than the tool. It keeps its resource
//! limits. One of them, the soft limit on file locks, means nothing since Linux 2.4, is there in every kernel, and may
//! be set by everybody: a number in it goes wherever the process forks and whatever it executes.

use std::hash::{DefaultHasher, Hash, Hasher};

/// What the limit is set to: a number of the run, and the slot in its lower bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(u64);

/// Bits of the number of a slot.
const SLOT_BITS: u32 = 16;

impl Mark {
    /// The mark of all processes of the run with this secret.
    pub(super) fn of_run(secret: &[u8]) -> Self {
        let mut hasher = DefaultHasher::new();
        secret.hash(&mut hasher);
        // Above all that anybody would set, and below infinity.
        Self((1 << 62) | ((hasher.finish() >> 2) & !((1 << SLOT_BITS) - 1)))
    }

    /// The mark of the run whose tools have `token`, `NAME=value`, in their environment.
    pub(super) fn of_token(token: &str) -> Self {
        Self::of_run(token.split_once('=').map_or(token, |(_, secret)| secret).as_bytes())
    }

    /// The mark of one slot of this run.
    pub(super) fn of_slot(self, slot: usize) -> Self {
        Self(self.0 | (slot as u64 & ((1 << SLOT_BITS) - 1)))
    }

    /// The mark of the tool that waits in this slot to be forked: no task's.
    pub(super) const fn of_warm(self) -> Self {
        Self(self.0 | 1 << (SLOT_BITS - 1))
    }

    /// What is put on a process.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// Marks the calling process. Async-signal-safe.
    pub(super) fn put_on_self(self) {
        // SAFETY: plain data and system calls. A hard limit below the mark leaves the process without one: it is then
        // known by its group and its environment alone.
        unsafe {
            let mut limit: libc::rlimit64 = std::mem::zeroed();
            if libc::prlimit64(0, libc::RLIMIT_LOCKS, std::ptr::null(), &mut limit) == 0 {
                limit.rlim_cur = self.0;
                libc::prlimit64(0, libc::RLIMIT_LOCKS, &limit, std::ptr::null_mut());
            }
        }
    }

    /// Whether `pid` carries this very mark.
    pub(super) fn is_on(self, pid: libc::pid_t) -> bool {
        number_on(pid) == Some(self.0)
    }

    /// What `pid` carries, if it is the mark of any slot of this run.
    pub(super) fn of_process(self, pid: libc::pid_t) -> Option<Self> {
        number_on(pid).filter(|number| number >> SLOT_BITS == self.0 >> SLOT_BITS).map(Self)
    }
}

/// The limit of a process, dead or alive; None if it is somebody else's.
fn number_on(pid: libc::pid_t) -> Option<u64> {
    // SAFETY: plain data, filled by prlimit64.
    unsafe {
        let mut limit: libc::rlimit64 = std::mem::zeroed();
        (libc::prlimit64(pid, libc::RLIMIT_LOCKS, std::ptr::null(), &mut limit) == 0).then_some(limit.rlim_cur)
    }
}
