//! A tool that stands still: it lives, and will never do anything again.
//!
//! So do some programs whose threads wait for each other: DIAMOND before 2.2.3 now and then (its issue 732). They use no
//! CPU time, and read and write nothing. What waits for a disk, a file server, another machine, or its turn to compute,
//! or was stopped by somebody, does not stand still.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::family::Family;
use super::work::Work;

/// Looks at one running task now and then.
pub(super) struct StillWatch<'a> {
    family: &'a Family,
    /// The tool's own process.
    tool: libc::pid_t,
    limit: Duration,
    /// CPU time of the tool's own process; most often it tells enough.
    ticks: Option<u64>,
    seen: HashMap<libc::pid_t, Work>,
    looked_at: Instant,
    still_for: Duration,
}

/// Looks in the time after which a task stands still.
const LOOKS: u32 = 10;

impl<'a> StillWatch<'a> {
    /// A task stands still when nothing was done for `limit`.
    pub(super) fn of(family: &'a Family, tool: libc::pid_t, limit: Duration) -> Self {
        let (looked_at, still_for) = (Instant::now(), Duration::ZERO);
        Self { family, tool, limit, ticks: None, seen: HashMap::new(), looked_at, still_for }
    }

    /// Time until the next look.
    pub(super) fn pause(&self) -> Duration {
        self.limit / LOOKS
    }

    /// Looks again; whether the task has stood still for so long that it is to be ended.
    pub(super) fn stands_still(&mut self) -> bool {
        // If we were stopped ourselves, and the tool perhaps with us, this time does not count.
        let gone_by = self.looked_at.elapsed().min(2 * self.pause());
        self.looked_at = Instant::now();
        let ticks = Work::of(self.tool).map(|work| work.cpu_ticks);
        if ticks != self.ticks {
            self.ticks = ticks;
            self.seen.clear();
            self.still_for = Duration::ZERO;
            return false;
        }
        let work = self.family.work();
        // Where the tool is not found, nobody knows what it has started.
        let is_still =
            work.contains_key(&self.tool) && work == self.seen && work.keys().all(|process| is_waiting(*process));
        self.seen = work;
        self.still_for = if is_still { self.still_for + gone_by } else { Duration::ZERO };
        self.still_for >= self.limit
    }
}

/// Whether all threads of a process wait for each other, for other processes, or for a time.
fn is_waiting(process: libc::pid_t) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().all(|thread| {
        let of_thread = |name: &str| fs::read_to_string(thread.path().join(name)).ok();
        let stat = of_thread("stat").unwrap_or_default();
        match stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().next()) {
            Some("S") => of_thread("syscall").is_none_or(|call| is_wait(process, &call)),
            Some("Z" | "X") => true,
            _ => false,
        }
    })
}

/// Whether a system call, as `/proc/PID/syscall` tells it, is none that a file server answers.
///
/// On filesystems in user space, a thread that waits for a file looks like any other that waits.
fn is_wait(process: libc::pid_t, call: &str) -> bool {
    let mut words = call.split_ascii_whitespace();
    let Some(number) = words.next().and_then(|word| word.parse::<libc::c_long>().ok()) else { return false };
    if [libc::SYS_read, libc::SYS_readv, libc::SYS_write, libc::SYS_writev].contains(&number) {
        let file = words.next().and_then(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        let target = file.and_then(|file| fs::read_link(format!("/proc/{process}/fd/{file}")).ok());
        return target.is_some_and(|target| target.to_string_lossy().starts_with("pipe:["));
    }
    WAITS.contains(&number)
}

/// System calls that wait for another thread, a child, a signal, a pipe or a time.
const WAITS: &[libc::c_long] = &[
    libc::SYS_futex,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
];
