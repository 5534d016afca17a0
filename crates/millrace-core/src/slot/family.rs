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
use super::running_time::{Deadline, RunningTime};
use super::spawn::{Ending, Reaped, Usage, reap_if_ended};
use super::work::{Work, is_busy};

/// The processes of one slot besides its tool.
pub(super) struct Family {
    /// The children of our main thread; None on a kernel that does not tell.
    children: Option<File>,
    mark: Mark,
}

/// Held while ended processes are reaped: between looking at a number and using it, it must not become another's.
/// What [`Family::reap_of_run`] has reaped stands in it until the slot whose it was looks.
static REAPING: Mutex<Vec<Ended>> = Mutex::new(vec![]);

/// How a process of a slot has ended.
struct Ended {
    mark: Mark,
    pid: libc::pid_t,
    ending: Ending,
    usage: Usage,
}

/// What became of processes that outlived their tool.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// All ended by themselves.
    Nothing,
    /// They did nothing any more; these, in words.
    Idle(String),
    /// They were still at work when there was no more time.
    Late,
    /// This one died of a signal, in words.
    Killed(String),
}

/// Signals of which a process dies that has not done its work.
const FATAL: [(i32, &str); 9] = [
    (libc::SIGKILL, "SIGKILL"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGSYS, "SIGSYS"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
];

/// Signals by which programs end what they have started, too: of those that die of them only what did so after the tool
/// had ended, and was not asked before, has not done its work.
const ASKED: [(i32, &str); 5] = [
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGUSR1, "SIGUSR1"),
];

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
        self.look_for(usage, |_, _| ())
    }

    /// The first look after the tool has ended: those that live; and which of the others has crashed, in words.
    ///
    /// Of one that was killed nobody knows whether the tool did that itself before it ended.
    pub(super) fn look_first(&self, usage: &mut Usage) -> io::Result<(Vec<libc::pid_t>, Option<String>)> {
        let mut crashed = None;
        let living = self.look_for(usage, |pid, ending| {
            if ending != Ending::Signalled(libc::SIGKILL) {
                crashed = crashed
                    .take()
                    .or(named(ending, &FATAL).map(|signal| format!("process {pid} was killed by {signal}")));
            }
        })?;
        Ok((living, crashed))
    }

    /// Reaps what has ended of any slot of the run. A slot does that itself when its tool has ended; a tool that runs
    /// for days may leave many before.
    pub(super) fn reap_of_run(&self) -> io::Result<()> {
        let mut kept = reaping();
        for pid in self.children()? {
            let Some(mark) = self.mark.of_process(pid) else { continue };
            let mut usage = Usage::default();
            if let Reaped::Ended(ending) = reap_if_ended(pid, &mut usage) {
                kept.push(Ended { mark, pid, ending, usage });
            }
        }
        Ok(())
    }

    /// Looks for processes, and says of each that has ended how.
    fn look_for(&self, usage: &mut Usage, mut ended: impl FnMut(libc::pid_t, Ending)) -> io::Result<Vec<libc::pid_t>> {
        let is_ours = |pid: &libc::pid_t| self.mark.is_on(*pid);
        let is_alone = !self.children()?.iter().any(is_ours);
        let mut kept = reaping();
        kept.retain(|one| {
            if one.mark == self.mark {
                usage.add(one.usage);
                ended(one.pid, one.ending);
            }
            one.mark != self.mark
        });
        if is_alone {
            return Ok(vec![]);
        }
        loop {
            let ours: Vec<_> = self.children()?.into_iter().filter(is_ours).collect();
            let mut living = vec![];
            for &pid in &ours {
                match reap_if_ended(pid, usage) {
                    Reaped::Lives => living.push(pid),
                    Reaped::Gone => (),
                    Reaped::Ended(ending) => ended(pid, ending),
                }
            }
            // What one that has just ended leaves is ours by now.
            if living.len() == ours.len() {
                return Ok(living);
            }
        }
    }

    /// Waits for what the tool left, as long as it works, but no longer than `deadline` or `goes_on` tells.
    ///
    /// `living` is what [`Family::look_first`] has found.
    pub(super) fn wait(
        &self,
        living: Vec<libc::pid_t>,
        patience: Duration,
        deadline: Option<&Deadline>,
        goes_on: impl Fn() -> bool,
        usage: &mut Usage,
    ) -> io::Result<Left> {
        let mut pause = Duration::from_micros(500);
        let window = (patience / 10).min(Duration::from_secs(1));
        let time = RunningTime::begin();
        let (mut seen, mut seen_at, mut busy_at) = (self.work(), Duration::ZERO, Duration::ZERO);
        let mut sound = sound(living);
        loop {
            let mut killed = None;
            let living = self.look_for(usage, |pid, ending| {
                let signal = named(ending, &FATAL).or_else(|| named(ending, &ASKED));
                if let (Some(name), Some(signal)) = (sound.remove(&pid), signal) {
                    killed = Some(format!("{name} was killed by {signal}"));
                }
            })?;
            if let Some(words) = killed {
                return Ok(Left::Killed(words));
            }
            if living.is_empty() {
                return Ok(Left::Nothing);
            }
            for (pid, name) in self::sound(living) {
                sound.entry(pid).or_insert(name);
            }
            let now = time.elapsed();
            if !goes_on() || deadline.is_some_and(Deadline::is_over) {
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
        settled(|| self.read_children())
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

    /// What each of them has done so far.
    pub(super) fn work(&self) -> HashMap<libc::pid_t, Work> {
        self.members().into_iter().filter_map(|pid| Some((pid, Work::of(pid)?))).collect()
    }

    fn names(&self) -> String {
        let living = self.look(&mut Usage::default()).unwrap_or_default();
        living.into_iter().map(name).collect::<Vec<_>>().join(", ")
    }
}

/// What `read` tells twice in a row.
///
/// The kernel reads the list of children one by one (proc(5), `children`): if one that it has shown is reaped meanwhile,
/// it leaves out the next. The same twice has left out nobody.
fn settled(mut read: impl FnMut() -> io::Result<Vec<libc::pid_t>>) -> io::Result<Vec<libc::pid_t>> {
    let mut before = read()?;
    while !before.is_empty() {
        let after = read()?;
        if before == after {
            break;
        }
        before = after;
    }
    Ok(before)
}

/// The signal in an ending, if it is one of these.
fn named(ending: Ending, signals: &[(i32, &'static str)]) -> Option<&'static str> {
    signals.iter().find(|(number, _)| ending == Ending::Signalled(*number)).map(|(_, name)| *name)
}

/// Those that nobody has killed, with their names: what the tool itself killed in its last moment is still to die of that.
fn sound(living: Vec<libc::pid_t>) -> HashMap<libc::pid_t, String> {
    living.into_iter().filter(|pid| !is_dying(*pid)).map(|pid| (pid, name(pid))).collect()
}

/// A process for a message.
fn name(pid: libc::pid_t) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("{} (process {pid})", String::from_utf8_lossy(&comm).trim_end())
}

/// Whether a process that has not yet ended has been killed, or asked to end.
fn is_dying(pid: libc::pid_t) -> bool {
    let field = |text: &str, name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name))?.trim();
        u64::from_str_radix(value, 16).ok()
    };
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = field(&status, "SigPnd:").unwrap_or(0) | field(&status, "ShdPnd:").unwrap_or(0);
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let flags: u64 =
        stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse().ok()).unwrap_or(0);
    let is_asked = ASKED.iter().chain(&FATAL).any(|(signal, _)| pending >> (signal - 1) & 1 == 1);
    is_asked || flags & (EXITING | SIGNALED) != 0
}

/// Flags of a process in `/proc/PID/stat`: it is about to end; because of a signal.
const EXITING: u64 = 0x4;
const SIGNALED: u64 = 0x400;

fn reaping() -> MutexGuard<'static, Vec<Ended>> {
    REAPING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_another_hid_by_its_end_is_found() {
        // 11 was reaped while the list was read, and so 12 was left out.
        let mut reads = [vec![11], vec![12], vec![12]].into_iter();
        assert_eq!(settled(|| Ok(reads.next().unwrap())).unwrap(), [12]);
        let mut reads = [vec![10, 11], vec![10, 12], vec![10, 12]].into_iter();
        assert_eq!(settled(|| Ok(reads.next().unwrap())).unwrap(), [10, 12]);
        assert!(settled(|| Ok(vec![])).unwrap().is_empty());
    }
}
