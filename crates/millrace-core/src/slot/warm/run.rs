//! One task in a fork of the warm tool, or in a process of its own.

use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use super::super::attempt::{Attempt, Outputs};
use super::super::control::Control;
use super::super::outcome::{Failure, Outcome, Sink};
use super::super::place::Place;
use super::super::run::Said;
use super::super::spawn::Process;
use super::begin::{Cold, Server};
use super::compare::difference;
use super::{EACH, FIRST, order};

/// What came of a task that was run warm.
enum Warm {
    /// This is its result.
    Ended(Result<(), Failure>),
    /// Nothing: it is to run in a process of its own.
    Failed,
    /// As well, and no task is to run warm any more.
    Never(String),
}

impl Place {
    /// Runs the tool, in a fork of the warm one if it may be.
    pub(in super::super) fn run_tool<S: Sink>(
        &self,
        attempt: &Attempt<'_, S>,
        outcome: &mut Outcome<S::Receipt>,
    ) -> Result<(), Failure> {
        let mut has_failed = false;
        if attempt.task.warm && self.warmth.turn(self.number) {
            match self.run_warm(attempt, outcome) {
                Warm::Ended(result) => return result,
                Warm::Failed => has_failed = true,
                Warm::Never(why) => outcome.cold = self.warmth.cool(why),
            }
            self.begin_again(attempt, outcome)?;
        } else if self.warmth.is_cold() {
            self.cool_down();
        }
        let outputs = self.execute(attempt, outcome, None)?;
        if has_failed && self.warmth.strike() {
            outcome.cold = self.warmth.cool("tasks failed warm that ran well otherwise".to_owned());
        }
        Self::keep(attempt, outputs, outcome)
    }

    /// Leaves the slot as if nothing had run; what is known of the warm tool stays in the outcome.
    fn begin_again<S: Sink>(&self, attempt: &Attempt<'_, S>, outcome: &mut Outcome<S::Receipt>) -> Result<(), Failure> {
        if attempt.control.is_killed() {
            return Err(Failure::Killed);
        }
        if self.warmth.is_cold() {
            self.cool_down();
        }
        self.clean(attempt.task).map_err(Failure::Io)?;
        self.private().restore(&self.root).map_err(Failure::Io)?;
        let (cold, saved_seconds) = (outcome.cold.take(), outcome.saved_seconds - outcome.usage.cpu_seconds);
        *outcome = Outcome { cold, saved_seconds, ..Outcome::new() };
        Ok(())
    }

    fn run_warm<S: Sink>(&self, attempt: &Attempt<'_, S>, outcome: &mut Outcome<S::Receipt>) -> Warm {
        let mut slot = self.server();
        if let Some(dead) = slot.take_if(|server| server.has_ended()) {
            self.bury_warm(dead.process);
        }
        if slot.is_none() {
            match self.begin(attempt.task, attempt.control) {
                Ok(server) => {
                    outcome.saved_seconds -= server.cpu_seconds;
                    *slot = Some(server);
                }
                Err(Cold::Never(why)) => return Warm::Never(why),
                Err(Cold::Failed(failure)) => return Warm::Ended(Err(failure)),
            }
        }
        let Some(mut server) = slot.take() else { return Warm::Failed };
        drop(slot);
        match self.warm_argv(attempt.task) {
            Ok(argv) if argv == server.argv => {}
            _ => {
                self.bury_warm(server.process);
                return Warm::Never("its arguments are not the same for all tasks".to_owned());
            }
        }
        let run = self.execute(attempt, outcome, Some(&mut server));
        server.n_done += u64::from(run.is_ok());
        let is_compared = server.n_equal < FIRST || server.n_done % EACH == 0;
        let cpu_seconds = server.cpu_seconds;
        if server.is_lost || matches!(run, Err(Failure::Doubtful)) {
            self.bury_warm(server.process); // with a fork that nobody knows of, perhaps
        } else {
            *self.server() = Some(server);
        }
        let outputs = match run {
            Ok(outputs) => outputs,
            Err(failure @ (Failure::Killed | Failure::Doubtful)) => return Warm::Ended(Err(failure)),
            Err(_) => return Warm::Failed,
        };
        if is_compared {
            return Warm::Ended(self.compare(attempt, outcome, outputs));
        }
        self.warmth.unseen.store(true, Ordering::Relaxed);
        outcome.is_warm = true;
        outcome.saved_seconds += cpu_seconds;
        Warm::Ended(Self::keep(attempt, outputs, outcome))
    }

    /// Runs the task again in a process of its own, whose result it is, and compares.
    fn compare<S: Sink>(
        &self,
        attempt: &Attempt<'_, S>,
        outcome: &mut Outcome<S::Receipt>,
        mut warm: Outputs,
    ) -> Result<(), Failure> {
        let ending = outcome.ending;
        self.begin_again(attempt, outcome)?;
        let mut own = self.execute(attempt, outcome, None)?;
        let mut found = difference(attempt.sink, attempt.task, &mut warm, &mut own).map_err(Failure::Io)?;
        if ending != outcome.ending {
            found = Some("it ended with another exit status".to_owned());
        }
        if let Some(words) = found {
            self.cool_down();
            let told = self.warmth.cool(format!("it gave other bytes when it was warm: {words}"));
            if self.warmth.unseen.load(Ordering::Relaxed) {
                return Err(Failure::Unequal(words));
            }
            outcome.cold = told;
        } else if let Some(server) = &mut *self.server() {
            server.n_equal += 1;
            if server.n_equal == FIRST {
                self.warmth.trust();
            }
        }
        Self::keep(attempt, own, outcome)
    }

    /// Forks the warm tool; whoever asks `control` for a kill from then on reaches the fork.
    pub(in super::super) fn fork(
        &self,
        server: &mut Server,
        control: &Control,
        said: &mut Said,
    ) -> Result<Process, Failure> {
        server.repeat(&mut said.stdout, &mut said.stderr).map_err(Failure::Io)?;
        let fresh = server.held.iter().map(|held| held.fresh(&self.root, &said.stdout, &said.stderr));
        let fresh = fresh.collect::<Result<Vec<_>, _>>().map_err(Failure::Io)?;
        // Held until the number is there, so that whoever asks for a kill sees it.
        let mut running = control.running();
        let forked = order::fork(&mut server.link, self.mark, &fresh);
        server.is_lost = forked.is_err();
        let pid = forked.map_err(Failure::Io)?;
        // SAFETY: our own child; it does the same, whoever comes first.
        unsafe { libc::setpgid(pid, pid) };
        *running = Some(pid);
        Ok(Process { pid })
    }

    pub(super) fn server(&self) -> MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
