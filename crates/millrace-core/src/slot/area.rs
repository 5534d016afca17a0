//! The free space where tools work: whether it ran out while a task was there.
//!
//! A tool that does not look at errors ends well with its output cut. When the space is free again by then, nothing of
//! that is left to see, so it has to be seen while it lasts: [`Area::look`] is to be called again and again.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A filesystem, and when it was last seen with less room than is good.
#[derive(Debug)]
pub(super) struct Area {
    folder: File,
    /// Free bytes below which it may have been full between two looks.
    low_bytes: u64,
    low: Mutex<Low>,
}

/// When there was less room than is good.
#[derive(Debug, Default)]
struct Low {
    /// The last moment at which it may have been so.
    at: Option<Instant>,
    /// What the last look saw.
    is_low: bool,
}

impl Low {
    /// Notes a look at `now`. What one look saw may have lasted until the next: also for what began in between.
    fn note(&mut self, is_low: bool, now: Instant) {
        if self.is_low || is_low {
            self.at = Some(now);
        }
        self.is_low = is_low;
    }

    /// Whether something that began at `begun` may have met it.
    fn is_since(&self, begun: Instant) -> bool {
        self.at.is_some_and(|at| at >= begun)
    }
}

/// Free bytes below which a filesystem counts as full: what is left may be in pieces that a write cannot use.
const LEAST_FREE: u64 = 64 << 10;

/// Free bytes that count as low, where there are plenty.
const LOW: u64 = 64 << 20;

/// Nothing writes faster.
const MOST_BYTES_A_SECOND: f64 = 10e9;

impl Area {
    /// The area that holds `folder`. What is low depends on what is free now.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let folder = fs_err::File::open(folder)?.into_file();
        let room = Room::of(&folder)?;
        Ok(Self { folder, low_bytes: LOW.min(room.size / 16).min(room.free / 4), low: Mutex::default() })
    }

    /// Notes whether there is room, and tells when to look again: before all of it can be gone.
    pub(super) fn look(&self) -> io::Result<Duration> {
        let room = self.see()?;
        let seconds = room.free as f64 / MOST_BYTES_A_SECOND;
        Ok(Duration::from_secs_f64(seconds).clamp(Duration::from_millis(5), Duration::from_millis(100)))
    }

    /// What was wrong with the room for what ran since `begun`, if anything.
    pub(super) fn trouble(&self, begun: Instant) -> io::Result<Option<&'static str>> {
        if self.see()?.is_full() {
            return Ok(Some("the work directory is full"));
        }
        let was_low = self.low().is_since(begun);
        Ok(was_low.then_some("the work directory was full, or nearly, while a tool worked there"))
    }

    fn see(&self) -> io::Result<Room> {
        // Looks of several threads are noted in the order in which they are made.
        let mut low = self.low();
        let room = Room::of(&self.folder)?;
        low.note(room.free < self.low_bytes || room.is_full(), Instant::now());
        Ok(room)
    }

    fn low(&self) -> std::sync::MutexGuard<'_, Low> {
        self.low.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a filesystem has.
struct Room {
    size: u64,
    free: u64,
    counts_blocks: bool,
    no_more_files: bool,
}

impl Room {
    fn of(folder: &File) -> io::Result<Self> {
        // SAFETY: plain data, filled by fstatvfs on a live descriptor.
        let (result, stat) = unsafe {
            let mut stat: libc::statvfs = std::mem::zeroed();
            (libc::fstatvfs(folder.as_raw_fd(), &mut stat), stat)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // The superuser may use what is kept back for it. Some filesystems count no files or blocks: 0 of 0 is not full.
        // SAFETY: no arguments, cannot fail.
        let blocks = if unsafe { libc::geteuid() } == 0 { stat.f_bfree } else { stat.f_bavail };
        Ok(Self {
            size: stat.f_blocks.saturating_mul(stat.f_frsize),
            free: if stat.f_blocks > 0 { blocks.saturating_mul(stat.f_frsize) } else { u64::MAX },
            counts_blocks: stat.f_blocks > 0,
            no_more_files: stat.f_files > 0 && stat.f_ffree == 0,
        })
    }

    fn is_full(&self) -> bool {
        (self.counts_blocks && self.free < LEAST_FREE) || self.no_more_files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_room_lasts_until_a_look_finds_room_again() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let mut low = Low::default();
        low.note(false, at(1));
        assert!(!low.is_since(at(0)), "there was always room");
        low.note(true, at(2));
        assert!(low.is_since(at(0)) && low.is_since(at(2)));
        assert!(!low.is_since(at(3)), "nobody has looked since");
        low.note(false, at(4));
        assert!(low.is_since(at(3)), "what began after the bad look may have met what it saw");
        low.note(false, at(6));
        assert!(!low.is_since(at(5)), "what began after a good look has not");
    }
}
