//! What processes do, as the kernel counts it.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

/// What a process has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) cpu_ticks: u64,
    read: u64,
    written: u64,
    /// It waits for a disk.
    blocked: bool,
}

impl Work {
    /// None: it has ended.
    pub(super) fn of(pid: libc::pid_t) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may hold anything.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        if fields.first() == Some(&"Z") {
            return None;
        }
        let number = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
        let of_io =
            |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok()).unwrap_or(0);
        let (cpu_ticks, blocked) = (number(11) + number(12), fields.first() == Some(&"D"));
        Some(Self { cpu_ticks, read: of_io("rchar:"), written: of_io("wchar:"), blocked })
    }
}

/// Bytes read in a window that are more than a program needs to start: a loop around `sleep` is no work.
const LEAST_READ: u64 = 64 << 10;

/// Whether what was done between two looks is more than what a daemon does that waits.
pub(super) fn is_busy(
    before: &HashMap<libc::pid_t, Work>,
    after: &HashMap<libc::pid_t, Work>,
    window: Duration,
) -> bool {
    let mut gained = Work::default();
    for (pid, now) in after {
        let then = before.get(pid).copied().unwrap_or_default();
        gained.cpu_ticks += now.cpu_ticks.saturating_sub(then.cpu_ticks);
        gained.read += now.read.saturating_sub(then.read);
        gained.written += now.written.saturating_sub(then.written);
        gained.blocked |= now.blocked;
    }
    // SAFETY: no memory involved.
    let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    gained.blocked
        || gained.written > 0
        || gained.read >= LEAST_READ
        || gained.cpu_ticks as f64 / ticks_a_second >= 0.02 * window.as_secs_f64()
}
