//! What a tool has started and not waited for: found, waited for, or killed.
//!
//! This process is the subreaper of all that its tools start: a process whose parent has ended becomes a child of our
//! main thread. So when a tool has ended, everything that it left is below one of those, and an empty list is proof that
//! nothing is left. Whose they are tells the [`Mark`].

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::mark::Mark;
use super::spawn::{Usage, reap_if_ended};

/// The processes of one slot besides its tool.
pub(super) struct Family {
    /// The children of our main thread; None on a kernel that does not tell.
    children: Option<File>,
    mark: Mark,
}

/// Held while ended processes are reaped: between looking at a number and using it, it must not become another's.
static REAPING: Mutex<()> = Mutex::new(());

/// What became of processes that outlived their tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All ended by themselves.
    Nothing,
    /// They did nothing any more; these, in words.
    Idle(String),
    /// They were still at work when there was no more time.
    Late,
}

/// A process that is killed ends within this time, unless it hangs in the kernel.
const MOST_KILLING: Duration = Duration::from_secs(20);

/// Makes this process the parent of what its tools leave.
pub(super) fn adopt() -> io::Result<()> {
    // SAFETY: no memory involved.
    if unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl Family {
    pub(super) fn of(mark: Mark) -> Self {
        let own = std::process::id();
        Self { children: File::open(format!("/proc/self/task/{own}/children")).ok(), mark }
    }

    /// Reaps those that have ended, and returns those that live.
    pub(super) fn look(&self, usage: &mut Usage) -> io::Result<Vec<libc::pid_t>> {
        self.look_for(usage, |pid| self.mark.is_on(pid))
    }

    /// Reaps what has ended of any slot of the run. A slot does that itself when its tool has ended; a tool that runs
    /// for days may leave many before.
    pub(super) fn reap_of_run(&self) -> io::Result<()> {
        self.look_for(&mut Usage::default(), |pid| self.mark.is_on_in_any_slot(pid)).map(drop)
    }

    fn look_for(&self, usage: &mut Usage, is_ours: impl Fn(libc::pid_t) -> bool) -> io::Result<Vec<libc::pid_t>> {
        if self.children()?.iter().all(|pid| !is_ours(*pid)) {
            return Ok(vec![]);
        }
        let _reaping = reaping();
        loop {
            let ours: Vec<_> = self.children()?.into_iter().filter(|pid| is_ours(*pid)).collect();
            let living: Vec<_> = ours.iter().copied().filter(|pid| !reap_if_ended(*pid, usage)).collect();
            // What one that has just ended leaves is ours by now.
            if living.len() == ours.len() {
                return Ok(living);
            }
        }
    }

    /// Waits for what the tool left, as long as it works, but no longer than `deadline` or `goes_on` tells.
    pub(super) fn wait(
        &self,
        patience: Duration,
        deadline: Option<Instant>,
        goes_on: impl Fn() -> bool,
        usage: &mut Usage,
    ) -> io::Result<Left> {
        let mut pause = Duration::from_micros(500);
        let window = (patience / 10).min(Duration::from_secs(1));
        let (mut seen, mut seen_at, mut busy_at) = (self.work(), Instant::now(), Instant::now());
        while !self.look(usage)?.is_empty() {
            let now = Instant::now();
            if !goes_on() || deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Left::Late);
            }
            if now - seen_at >= window {
                let work = self.work();
                if is_busy(&seen, &work, now - seen_at) {
                    busy_at = now;
                } else if now - busy_at >= patience {
                    return Ok(Left::Idle(self.names()));
                }
                (seen, seen_at) = (work, now);
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(50));
        }
        Ok(Left::Nothing)
    }

    /// Kills all of them. Only a process that hangs in the kernel is left after that.
    pub(super) fn kill(&self, usage: &mut Usage) -> io::Result<()> {
        let begun = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            let living = self.look(usage)?;
            if living.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > MOST_KILLING {
                let words = format!("{} cannot be killed, and may write where the next task runs", self.names());
                return Err(io::Error::other(words));
            }
            {
                let _reaping = reaping();
                for pid in living {
                    if self.mark.is_on(pid) {
                        // SAFETY: our child, which nobody reaps meanwhile.
                        unsafe { libc::kill(pid, libc::SIGKILL) };
                    }
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(20));
        }
    }

    /// The children of our main thread, whoever's they are.
    fn children(&self) -> io::Result<Vec<libc::pid_t>> {
        let mut before = self.read_children()?;
        // The list is read one by one: an end in between may hide another. One alone (the watchdog) hides nobody.
        while before.len() > 1 {
            let after = self.read_children()?;
            if before == after {
                break;
            }
            before = after;
        }
        Ok(before)
    }

    fn read_children(&self) -> io::Result<Vec<libc::pid_t>> {
        let Some(file) = &self.children else { return Ok(vec![]) };
        let (mut bytes, mut filled) = (vec![0; 512], 0);
        loop {
            let n = file.read_at(&mut bytes[filled..], filled as u64)?;
            filled += n;
            if n == 0 || filled < bytes.len() {
                break;
            }
            bytes.resize(2 * filled, 0);
        }
        let text = String::from_utf8_lossy(&bytes[..filled]);
        Ok(text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect())
    }

    /// All living processes of the slot: those that were adopted and those below them.
    fn members(&self) -> Vec<libc::pid_t> {
        let Ok(processes) = fs::read_dir("/proc") else { return vec![] };
        let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|pid| self.mark.is_on(*pid)).collect()
    }

    fn work(&self) -> HashMap<libc::pid_t, Work> {
        self.members().into_iter().filter_map(|pid| Some((pid, Work::of(pid)?))).collect()
    }

    fn names(&self) -> String {
        let name = |pid| {
            let comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
            Some(format!("{} (process {pid})", String::from_utf8_lossy(&comm).trim_end()))
        };
        let living = self.look(&mut Usage::default()).unwrap_or_default();
        living.into_iter().filter_map(name).collect::<Vec<_>>().join(", ")
    }
}

fn reaping() -> MutexGuard<'static, ()> {
    REAPING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a process has done so far.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    cpu_ticks: u64,
    read: u64,
    written: u64,
    /// It waits for a disk.
    blocked: bool,
}

impl Work {
    fn of(pid: libc::pid_t) -> Option<Self> {
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
fn is_busy(before: &HashMap<libc::pid_t, Work>, after: &HashMap<libc::pid_t, Work>, window: Duration) -> bool {
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
