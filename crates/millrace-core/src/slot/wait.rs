//! Waiting for the end of a tool and of all that it started.

use std::io;
use std::time::Duration;

use super::control::Control;
use super::family::Left;
use super::place::Place;
use super::running_time::Deadline;
use super::spawn::{Ending, Process, Usage};
use super::still::StillWatch;

/// Time between two looks at the CPU time of a task.
const CPU_PAUSE: Duration = Duration::from_secs(1);

/// How the processes of a task came to their end.
pub(super) enum End {
    /// By themselves.
    Whole,
    /// The caller asked for it before all had ended: whatever they did is not counted.
    Cut,
    /// When their time, or their CPU time, was over.
    Late,
    /// When they had done nothing for this time.
    Still(Duration),
    /// These did nothing any more after the tool itself had ended.
    Idle(String),
    /// This one died of a signal after the tool itself had ended.
    Killed(String),
}

impl Place {
    /// Waits for the end of `process` and of all that it started, and reaps them. They are killed when time is over, and
    /// when the tool itself ended badly.
    pub(super) fn wait(
        &self,
        process: Process,
        timeout: Option<Duration>,
        cpu_limit: Option<Duration>,
        control: &Control,
        usage: &mut Usage,
    ) -> io::Result<(Ending, End)> {
        let pid = process.pid;
        let deadline = timeout.map(Deadline::after);
        // Asked to be killed between two looks: the caller may have come before the number was there.
        if control.is_killed() {
            control.signal();
        }
        let cut = self.wait_for_tool(&process, deadline.as_ref(), cpu_limit);
        // A process that cannot be watched is not left running.
        if !matches!(cut, Ok(None)) {
            control.signal();
            process.ended_within(None)?;
        }
        let mut inherited = Usage::default();
        let (left, crashed) = self.family.look_first(&mut inherited)?;
        let leaves = !left.is_empty();
        let (cut, trouble) = cut.map_or_else(|error| (None, Some(error)), |cut| (cut, None));
        let mut end = match (cut, crashed) {
            (Some(cut), _) => cut,
            (None, Some(words)) => End::Killed(words),
            (None, None) => End::Whole,
        };
        let goes_on = leaves && matches!(end, End::Whole) && trouble.is_none();
        if goes_on && process.ending()?.is_good(&self.ok_statuses) {
            end = self.wait_for_rest(left, deadline.as_ref(), control, &mut inherited)?;
        }
        // What ended after the caller had asked may have been cut by that, however well it ended.
        if control.is_killed() {
            end = End::Cut;
        }
        // Done before reaping, while the number is ours.
        // SAFETY: as in Control::signal.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        *control.running() = None;
        let (ending, used) = process.reap()?;
        *usage = used;
        if leaves {
            self.family.kill(&mut inherited)?;
        }
        usage.add(inherited);
        trouble.map_or(Ok((ending, end)), Err)
    }

    /// Waits for the end of what the tool left at work when it had ended.
    fn wait_for_rest(
        &self,
        left: Vec<libc::pid_t>,
        deadline: Option<&Deadline>,
        control: &Control,
        inherited: &mut Usage,
    ) -> io::Result<End> {
        Ok(match self.family.wait(left, self.patience, deadline, || !control.is_killed(), inherited)? {
            Left::Nothing => End::Whole,
            Left::Late => End::Late,
            Left::Idle(names) => End::Idle(names),
            Left::Killed(words) => End::Killed(words),
        })
    }

    /// Waits for the end of the tool itself; None if it came, else why it is to be brought about.
    fn wait_for_tool(
        &self,
        process: &Process,
        deadline: Option<&Deadline>,
        cpu_limit: Option<Duration>,
    ) -> io::Result<Option<End>> {
        let mut watch = self.still_limit.map(|limit| StillWatch::of(&self.family, process.pid, limit));
        loop {
            let pauses =
                [deadline.map(Deadline::pause), watch.as_ref().map(StillWatch::pause), cpu_limit.map(|_| CPU_PAUSE)];
            if process.ended_within(pauses.into_iter().flatten().min())? {
                return Ok(None);
            }
            if deadline.is_some_and(Deadline::is_over) || cpu_limit.is_some_and(|most| self.cpu_time() > most) {
                return Ok(Some(End::Late));
            }
            if let (Some(watch), Some(limit)) = (&mut watch, self.still_limit)
                && watch.stands_still()
            {
                return Ok(Some(End::Still(limit)));
            }
        }
    }

    /// CPU time of the processes of the task that live.
    fn cpu_time(&self) -> Duration {
        let ticks: u64 = self.family.work().values().map(|work| work.cpu_ticks).sum();
        // SAFETY: no memory involved.
        let ticks_a_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
        Duration::from_secs_f64(ticks as f64 / ticks_a_second)
    }
}
