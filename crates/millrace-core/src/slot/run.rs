//! One task in one slot: place the inputs, run the tool, collect what it wrote, clean up.

use std::fs::File;
use std::io;
use std::time::Instant;

use super::attempt::{Attempt, Outputs};
use super::control::Control;
use super::outcome::{Failure, Outcome, Sink};
use super::place::Place;
use super::spawn::Ending;
use super::task::{Collect, Task};
use super::wait::End;
use super::warm::Server;

/// How often a task runs again because of files that are written meanwhile; those that were are not shared any more.
const MOST_AGAIN: usize = 5;

/// Where the tool writes what it does not name.
pub(super) struct Said {
    pub(super) stdout: File,
    pub(super) stderr: File,
}

impl Said {
    /// What is written for people to read, of which the middle may go.
    fn to_cut(&self, task: &Task) -> io::Result<Vec<File>> {
        let mut words = vec![self.stderr.try_clone()?];
        if !task.outputs.iter().any(|output| matches!(output.collect, Collect::Stdout)) {
            words.push(self.stdout.try_clone()?);
        }
        Ok(words)
    }
}

impl Place {
    /// Runs `task` to its end and leaves the slot as it was.
    pub(super) fn run<S: Sink>(&self, task: &Task, control: &Control, sink: &S) -> Outcome<S::Receipt> {
        let mut outcome = self.run_once(task, control, sink, true);
        for left in (0..MOST_AGAIN).rev() {
            if !matches!(outcome.result, Err(Failure::Doubtful)) {
                break;
            }
            outcome = self.run_once(task, control, sink, left > 0);
        }
        outcome
    }

    fn run_once<S: Sink>(&self, task: &Task, control: &Control, sink: &S, doubts: bool) -> Outcome<S::Receipt> {
        let mut outcome = Outcome::new();
        let turn = self.watch.turn();
        let attempt = Attempt { task, control, sink, turn: doubts.then_some(turn) };
        let done = match &self.records {
            Some(lengths) => self.serve(lengths.as_ref(), &attempt, &mut outcome),
            None => self.run_tool(&attempt, &mut outcome),
        };
        if let Err(failure) = done {
            outcome.result = Err(failure);
        }
        let is_alone = !self.is_served() && !task.warm;
        outcome.files = self.table.as_ref().map(|table| table.take(&self.substitutions_of(task), is_alone));
        if self.is_served() {
            return outcome; // what lies in its folder is its own as long as it lives
        }
        self.old_namespaces.keep(self.namespace().take());
        let cleaned = self.clean(task);
        let restored = self.private().restore(&self.root);
        match (cleaned, restored) {
            (Ok(extra), Ok(_)) => outcome.extra = extra,
            (Err(error), _) | (_, Err(error)) => {
                if outcome.result.is_ok() {
                    outcome.result = Err(Failure::Io(error));
                }
            }
        }
        outcome
    }

    /// Runs the tool in a process of its own, or in a fork of `server`.
    pub(super) fn execute<S: Sink>(
        &self,
        attempt: &Attempt<'_, S>,
        outcome: &mut Outcome<S::Receipt>,
        server: Option<&mut Server>,
    ) -> Result<Outputs, Failure> {
        let Attempt { task, control, .. } = *attempt;
        let placed = self.place(task).map_err(Failure::Io)?;
        let mut said =
            Said { stdout: self.scratch().map_err(Failure::Io)?, stderr: self.scratch().map_err(Failure::Io)? };
        *control.words() = said.to_cut(task).map_err(Failure::Io)?;
        let begun = Instant::now();
        let watch = self.kills.watch();
        let process = match server {
            None => {
                self.start(task, control, placed.stdin.as_ref().unwrap_or(&self.null), &said.stdout, &said.stderr)?
            }
            Some(server) => self.fork(server, control, &mut said)?,
        };
        let waited = self.wait(process, task.timeout, task.cpu_limit, control, &mut outcome.usage);
        control.words().clear();
        // What we killed ourselves says nothing of the memory.
        let by_itself = waited.as_ref().ok().filter(|(_, end)| !matches!(end, End::Late | End::Still(_) | End::Cut));
        outcome.out_of_memory = by_itself.is_some_and(|(ending, _)| watch.is_hit(*ending));
        drop(watch);
        let (ending, end) = waited.map_err(Failure::Io)?;
        outcome.ending = Some(ending);
        outcome.wall_seconds = begun.elapsed().as_secs_f64();
        let pairs = self.substitutions_of(task);
        outcome.stderr = self.said(&mut said.stderr, &pairs).map_err(Failure::Io)?;
        let judged = self.judge(ending, end, begun, outcome.out_of_memory);
        if matches!(judged, Err(Failure::Ended(_))) && outcome.stderr.is_empty() {
            outcome.stderr = self.said(&mut said.stdout, &pairs).map_err(Failure::Io)?;
        }
        judged?;
        placed.look_at_inputs(&self.root)?;
        self.outputs_of(attempt, said.stdout, &outcome.stderr)
    }

    /// Whether the processes of a task, begun at `begun`, came to a good end.
    fn judge(&self, ending: Ending, end: End, begun: Instant, out_of_memory: bool) -> Result<(), Failure> {
        match end {
            End::Late => return Err(Failure::TimedOut),
            End::Still(limit) => return Err(Failure::StoodStill(limit)),
            End::Cut => return Err(Failure::Killed),
            _ => (),
        }
        // No space for the tool's files is our failure whatever the tool says: it may not even have noticed.
        if let Some(trouble) = self.area.trouble(begun).map_err(Failure::Io)? {
            let words = format!("{}: {trouble}", self.root.display());
            return Err(Failure::Io(io::Error::new(io::ErrorKind::StorageFull, words)));
        }
        if !ending.is_good(&self.ok_statuses) {
            return Err(Failure::Ended(ending));
        }
        if out_of_memory {
            return Err(Failure::Said("it did not notice a kill".to_owned()));
        }
        match end {
            End::Idle(names) => Err(Failure::Said(format!(
                "it left processes that did nothing for {:.0} s, so nobody knows whether its result is whole: {names}; \
                 let it wait for what it starts (`wait` in a shell script)",
                self.patience.as_secs_f64()
            ))),
            End::Killed(words) => Err(Failure::Said(format!("of what it left at work, {words}"))),
            _ => Ok(()),
        }
    }
}
