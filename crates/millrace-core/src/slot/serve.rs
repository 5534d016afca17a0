//! A program that stays alive in a slot: started once, then given the records of one task after another.
//!
//! It may read ahead and keep what it likes from record to record; what it wrote is the result of a task when all
//! records of the task are answered. A program that ended or wrote what is no answer is replaced with the next task.

use std::fs::File;
use std::io::{self, BufWriter, Seek};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Outputs};
use super::control::Control;
use super::io_counts::IoCounts;
use super::lengths::Lengths;
use super::live::Live;
use super::outcome::{Failure, Outcome, Sink};
use super::place::Place;
use super::running_time::Deadline;
use super::spawn::{Ending, Process, Usage};
use super::talk::{Broken, Talk};
use super::task::{Placement, Task};

/// A program has so long to end by itself when it has closed its output, or its run is over before it is done.
const FAREWELL: Duration = Duration::from_secs(5);

impl Place {
    /// Whether a program stays alive here now.
    pub(super) fn is_served(&self) -> bool {
        self.live().is_some()
    }

    fn live(&self) -> MutexGuard<'_, Option<Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one task: gives its records to the program, which is started if it is not there.
    pub(super) fn serve<S: Sink>(
        &self,
        lengths: &dyn Lengths,
        attempt: &Attempt<'_, S>,
        outcome: &mut Outcome<S::Receipt>,
    ) -> Result<(), Failure> {
        let Attempt { task, control, .. } = *attempt;
        let mut batch =
            self.place(task).map_err(Failure::Io)?.stdin.ok_or_else(|| Failure::Io(broken("no records")))?;
        let mut found = vec![];
        if let Some(path) = task.placements.iter().find_map(batch_of) {
            found = lengths.of(path).map_err(Failure::Io)?;
        }
        if found.iter().sum::<u64>() != batch.metadata().map_err(Failure::Io)?.len() {
            return Err(Failure::Io(broken("the records of a batch are not its bytes")));
        }
        let mut slot = self.live();
        if slot.as_ref().is_some_and(|live| live.process.ended_within(Some(Duration::ZERO)).unwrap_or(true)) {
            self.end(slot.take(), Duration::ZERO); // by itself, between two tasks: nobody's fault
        }
        let mut live = match slot.take() {
            Some(live) => live,
            None => self.revive(task, control)?,
        };
        let is_fresh = live.is_new;
        let mut result = self.exchange(&mut live, &mut batch, &found, attempt, outcome);
        if !is_fresh && found.len() == 1 && has_left(result.as_ref().err(), outcome) {
            // It may have been about to end before it took the record: only a fresh one is a witness against that.
            *control.running() = None;
            self.end(Some(live), Duration::ZERO);
            batch.rewind().map_err(Failure::Io)?;
            outcome.ending = None;
            live = self.revive(task, control)?;
            result = self.exchange(&mut live, &mut batch, &found, attempt, outcome);
        }
        let result = result.and_then(|outputs| Self::keep(attempt, outputs, outcome));
        *control.running() = None;
        if result.is_ok() {
            *slot = Some(live);
            return result;
        }
        let used = self.end(Some(live), Duration::ZERO);
        outcome.usage.peak_rss_bytes = used.peak_rss_bytes;
        result
    }

    fn revive(&self, task: &Task, control: &Control) -> Result<Live, Failure> {
        let (talk, stdin, stdout) = Talk::begin().map_err(Failure::Io)?;
        let stderr = appending(&self.scratch().map_err(Failure::Io)?).map_err(Failure::Io)?;
        let process = self.start(task, control, &stdin, &stdout, &stderr)?;
        Ok(Live { process, talk, stderr, cpu_seconds: 0.0, io: IoCounts::default(), is_new: true })
    }

    fn exchange<S: Sink>(
        &self,
        live: &mut Live,
        batch: &mut File,
        lengths: &[u64],
        attempt: &Attempt<'_, S>,
        outcome: &mut Outcome<S::Receipt>,
    ) -> Result<Outputs, Failure> {
        let Attempt { task, control, .. } = *attempt;
        live.stderr.set_len(0).map_err(Failure::Io)?;
        *control.running() = Some(live.process.pid);
        *control.words() = vec![live.stderr.try_clone().map_err(Failure::Io)?];
        if control.is_killed() {
            control.signal();
        }
        let watch = self.kills.watch();
        let begun = Instant::now();
        let deadline = task.timeout.map(Deadline::after);
        let mut answers = BufWriter::new(self.scratch().map_err(Failure::Io)?);
        let process = &live.process;
        let lives = || process.ended_within(Some(Duration::ZERO)).map(|ended| !ended);
        let asked = live.talk.ask(batch, lengths, &mut answers, deadline.as_ref(), lives);
        outcome.wall_seconds = begun.elapsed().as_secs_f64();
        let pairs = self.substitutions_of(task);
        let settle = |live: &mut Live, outcome: &mut Outcome<S::Receipt>| -> io::Result<()> {
            control.words().clear();
            outcome.stderr = self.said(&mut live.stderr, &pairs)?;
            outcome.usage = live.used()?;
            Ok(())
        };
        let first = match asked {
            Ok(first) => first,
            Err(why) => {
                let words = self.broken(why, live, control, lengths.len(), outcome);
                settle(live, outcome).map_err(Failure::Io)?;
                outcome.out_of_memory = outcome.ending.is_some_and(|ending| watch.is_hit(ending));
                return Err(words);
            }
        };
        settle(live, outcome).map_err(Failure::Io)?;
        if std::mem::take(&mut live.is_new) && lengths.len() > 1 {
            // What the start costs says nothing of what records cost: it comes once.
            let n = lengths.len() as f64;
            let seconds = first.elapsed().as_secs_f64() * n / (n - 1.0);
            (outcome.wall_seconds, outcome.usage.cpu_seconds) = (seconds, outcome.usage.cpu_seconds.min(seconds));
        }
        if control.is_killed() {
            return Err(Failure::Killed);
        }
        let file = answers.into_inner().map_err(|error| Failure::Io(error.into_error()))?;
        self.outputs_of(attempt, file, &outcome.stderr)
    }

    /// What it means that the records were not all answered; the program is brought to its end.
    fn broken<R>(
        &self,
        why: Broken,
        live: &Live,
        control: &Control,
        n_records: usize,
        outcome: &mut Outcome<R>,
    ) -> Failure {
        let said = match why {
            Broken::Io(error) => return Failure::Io(error),
            Broken::Late => return Failure::TimedOut,
            Broken::Garbled(words) => return Failure::Said(format!("{words}; see the record protocol")),
            Broken::Ended(answers) => format!("it ended after {answers} of {n_records} records"),
        };
        // One that closed its output and lives on has no more to say.
        if !live.process.ended_within(Some(FAREWELL)).unwrap_or(false) {
            return Failure::Said(format!("{said}: it closed its standard output"));
        }
        outcome.ending = live.process.ending().ok();
        match outcome.ending {
            _ if control.is_killed() => Failure::Killed,
            Some(ending) if !ending.is_good(&[]) => Failure::Ended(ending),
            _ => Failure::Said(format!("{said}, with exit status 0")),
        }
    }

    /// Lets the program go that stays alive here, if there is one, and cleans up after it.
    pub(super) fn dismiss(&self) {
        let live = self.live().take();
        self.end(live, FAREWELL);
    }

    /// The same when all records are answered; what it did after that to make its answers doubtful, in words.
    ///
    /// It has so long to end by itself; after that, or when asked for, it is killed, and nothing is known against it.
    pub(super) fn part(&self, control: &Control, patience: Duration) -> io::Result<Option<String>> {
        let Some(Live { process, talk, mut stderr, .. }) = self.live().take() else { return Ok(None) };
        let deadline = Instant::now() + patience;
        *control.running() = Some(process.pid);
        if control.is_killed() {
            control.signal();
        }
        let lives = || process.ended_within(Some(Duration::ZERO)).map(|ended| !ended);
        let parted = talk.rest(deadline, lives).and_then(|rest| {
            let ended = process.ended_within(Some(deadline.saturating_duration_since(Instant::now())))?;
            Ok((rest, ended.then(|| process.ending()).transpose()?))
        });
        *control.running() = None;
        self.bury(process);
        let (rest, ending) = parted?;
        if control.is_killed() {
            return Ok(None);
        }
        let what = match ending {
            Some(Ending::Signalled(signal)) => format!("it died of signal {signal}"),
            Some(Ending::Exited(status)) if !self.ok_statuses.contains(&status) && status != 0 => {
                format!("it ended with exit status {status}")
            }
            _ if !rest.is_empty() => format!("it wrote {:?}, which answers none", String::from_utf8_lossy(&rest)),
            _ => return Ok(None),
        };
        let said = self.said(&mut stderr, &self.substitutions)?;
        let said = String::from_utf8_lossy(&said).trim_end().to_owned();
        Ok(Some(format!("{what}{}{said}", if said.is_empty() { "" } else { "\n" })))
    }

    /// Ends a program that has so long to do it by itself; what it used.
    fn end(&self, live: Option<Live>, patience: Duration) -> Usage {
        let Some(Live { process, talk, .. }) = live else { return Usage::default() };
        drop(talk); // its input ends
        let _ = process.ended_within(Some(patience));
        self.bury(process)
    }

    /// Kills a program with all that it started; what it used.
    fn bury(&self, process: Process) -> Usage {
        let mut used = Usage::default();
        // SAFETY: signals a process group whose leader is not reaped yet.
        unsafe { libc::kill(-process.pid, libc::SIGKILL) };
        if let Ok((_, of_process)) = process.reap() {
            used = of_process;
        }
        // What hangs in the kernel is the watchdog's, who comes last.
        let _ = self.family.kill(&mut used);
        used
    }
}

/// Whether the program ended by itself, not for want of memory, with the record unanswered.
fn has_left<R>(failure: Option<&Failure>, outcome: &Outcome<R>) -> bool {
    let by_itself = matches!(failure, Some(Failure::Ended(_) | Failure::Said(_)));
    by_itself && outcome.ending.is_some() && !outcome.out_of_memory
}

fn batch_of(placement: &Placement) -> Option<&Path> {
    match placement {
        Placement::Stdin(path) => Some(path),
        _ => None,
    }
}

fn broken(words: &str) -> io::Error {
    io::Error::other(words)
}

/// The same file, at whose end all is written: so it can be emptied while the program lives.
fn appending(file: &File) -> io::Result<File> {
    // SAFETY: plain system call on a live descriptor.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } < 0 {
        return Err(io::Error::last_os_error());
    }
    file.try_clone()
}
