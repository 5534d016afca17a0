//! What processes read and wrote, as the kernel counts it.

use std::fs;
use std::ops::{AddAssign, Sub};
use std::sync::LazyLock;

/// What processes, and the children that they have waited for, read and wrote.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct IoCounts {
    /// Bytes that calls returned, from wherever.
    pub read_bytes: u64,
    /// Bytes that calls took.
    pub written_bytes: u64,
    /// Calls that read.
    pub reads: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Bytes that came from a disk, for reads and for mapped files.
    pub disk_read_bytes: u64,
    /// Bytes that are to go to a disk.
    pub disk_written_bytes: u64,
    /// Page faults that waited for a disk.
    pub major_faults: u64,
    /// Seconds for which their main threads waited for a disk; 0 where the kernel does not count them
    /// (`kernel.task_delayacct`).
    pub disk_wait_seconds: f64,
    /// Processes that belong to another user, of which the kernel does not tell.
    pub n_hidden: u64,
}

impl IoCounts {
    /// The counts of a process that is not reaped yet, without its page faults: `wait4` tells these.
    ///
    /// The kernel adds up the counts of threads and of children as these are waited for, however short their lives.
    pub(super) fn of_process(pid: libc::pid_t) -> Self {
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/io")) else {
            return Self { n_hidden: 1, ..Self::default() };
        };
        let mut counts = Self { disk_wait_seconds: disk_wait_of(pid), ..Self::default() };
        for (name, value) in text.lines().filter_map(|line| line.split_once(": ")) {
            let place = match name {
                "rchar" => &mut counts.read_bytes,
                "wchar" => &mut counts.written_bytes,
                "syscr" => &mut counts.reads,
                "syscw" => &mut counts.writes,
                "read_bytes" => &mut counts.disk_read_bytes,
                "write_bytes" => &mut counts.disk_written_bytes,
                _ => continue,
            };
            *place = value.trim().parse().unwrap_or(0);
        }
        counts
    }
}

/// Whether the kernel counts how long processes wait for disks; older kernels have no such setting, and count.
static IS_WAIT_COUNTED: LazyLock<bool> =
    LazyLock::new(|| fs::read("/proc/sys/kernel/task_delayacct").map_or(true, |text| text.trim_ascii() != b"0"));

/// Seconds for which the main thread of a process has waited for a disk: field 42 of `/proc/PID/stat` (proc(5)).
fn disk_wait_of(pid: libc::pid_t) -> f64 {
    const AFTER_NAME: usize = 42 - 3;
    if !*IS_WAIT_COUNTED {
        return 0.0;
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name stands in parentheses and may hold anything.
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(AFTER_NAME));
    let ticks = field.and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(0.0);
    // SAFETY: no memory involved.
    ticks / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64
}

impl AddAssign for IoCounts {
    fn add_assign(&mut self, other: Self) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.writes += other.writes;
        self.disk_read_bytes += other.disk_read_bytes;
        self.disk_written_bytes += other.disk_written_bytes;
        self.major_faults += other.major_faults;
        self.disk_wait_seconds += other.disk_wait_seconds;
        self.n_hidden += other.n_hidden;
    }
}

impl Sub for IoCounts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            disk_read_bytes: self.disk_read_bytes.saturating_sub(earlier.disk_read_bytes),
            disk_written_bytes: self.disk_written_bytes.saturating_sub(earlier.disk_written_bytes),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            disk_wait_seconds: (self.disk_wait_seconds - earlier.disk_wait_seconds).max(0.0),
            n_hidden: self.n_hidden.saturating_sub(earlier.n_hidden),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_that_were_waited_for_are_counted() {
        let script = "head -c 300000 /dev/zero | cat > /dev/null; head -c 200000 /dev/zero > /dev/null";
        let mut shell = Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        let pid = libc::pid_t::try_from(shell.id()).unwrap();
        // SAFETY: plain data, filled by waitid; a child that stays unreaped.
        unsafe {
            let mut about = std::mem::zeroed();
            libc::waitid(libc::P_PID, shell.id(), &mut about, libc::WEXITED | libc::WNOWAIT);
        }
        let counts = IoCounts::of_process(pid);
        shell.wait().unwrap();
        assert!((800_000..1_000_000).contains(&counts.read_bytes), "{counts:?}");
        assert!((800_000..900_000).contains(&counts.written_bytes), "{counts:?}");
        assert!(counts.reads > 30 && counts.writes > 30, "{counts:?}");
        assert_eq!(IoCounts::of_process(pid).n_hidden, 1);
    }
}
