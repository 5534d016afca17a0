//! A program that waits for records, and what it has used so far.

use std::fs::File;
use std::io;

use super::io_counts::IoCounts;
use super::spawn::{Process, Usage};
use super::talk::Talk;

/// A program that waits for records.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) process: Process,
    pub(super) talk: Talk,
    pub(super) stderr: File,
    /// CPU seconds that earlier tasks had.
    pub(super) cpu_seconds: f64,
    /// What earlier tasks read and wrote.
    pub(super) io: IoCounts,
    pub(super) is_new: bool,
}

impl Live {
    /// What it used since the last time.
    pub(super) fn used(&mut self) -> io::Result<Usage> {
        let total = cpu_seconds_of(self.process.pid)?;
        let cpu_seconds = (total - self.cpu_seconds).max(0.0);
        self.cpu_seconds = total;
        let io = IoCounts::of_process(self.process.pid);
        let earlier = std::mem::replace(&mut self.io, io);
        Ok(Usage { cpu_seconds, peak_rss_bytes: peak_of(self.process.pid), io: io - earlier })
    }
}

/// CPU seconds of all threads of a child that is not reaped yet.
pub(super) fn cpu_seconds_of(pid: libc::pid_t) -> io::Result<f64> {
    // SAFETY: plain data, filled by the calls.
    let (time, failed) = unsafe {
        let (mut clock, mut time) = (0, std::mem::zeroed::<libc::timespec>());
        let failed = libc::clock_getcpuclockid(pid, &mut clock) != 0 || libc::clock_gettime(clock, &mut time) != 0;
        (time, failed)
    };
    // One that has ended has no clock any more.
    Ok(if failed { 0.0 } else { time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9 })
}

/// Bytes of memory that a process had at most; 0: it has ended.
fn peak_of(pid: libc::pid_t) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) * 1024
}
