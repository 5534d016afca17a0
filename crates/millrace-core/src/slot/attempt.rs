//! One attempt at a task, whichever way the tool is started, and what makes its outputs a result.

use std::fs::File;
use std::io::Seek;

use super::control::Control;
use super::outcome::{Failure, Outcome, Sink};
use super::place::Place;
use super::task::Task;

/// (stream, name of the block, its bytes), in the order of the task's outputs.
pub(super) type Outputs = Vec<(u16, Vec<u8>, File)>;

/// A task, who may end it, and who takes what it wrote.
pub(super) struct Attempt<'a, S> {
    pub(super) task: &'a Task,
    pub(super) control: &'a Control,
    pub(super) sink: &'a S,
    /// Since when writes to shared files count; None: they are not looked at any more.
    pub(super) turn: Option<u64>,
}

impl Place {
    /// What a tool that ended well wrote, if there is nothing against it. `stdout` is where it wrote what it did not name.
    pub(super) fn outputs_of<S: Sink>(
        &self,
        attempt: &Attempt<'_, S>,
        mut stdout: File,
        stderr: &[u8],
    ) -> Result<Outputs, Failure> {
        if let Some(doubt) = attempt.sink.doubt(attempt.task, stderr) {
            return Err(Failure::Said(doubt));
        }
        self.look_at_shared(attempt.task, attempt.turn)?;
        stdout.rewind().map_err(Failure::Io)?;
        self.collect(attempt.task, stdout, &self.substitutions_of(attempt.task))
    }

    /// Makes it the result of the task.
    pub(super) fn keep<S: Sink>(
        attempt: &Attempt<'_, S>,
        outputs: Outputs,
        outcome: &mut Outcome<S::Receipt>,
    ) -> Result<(), Failure> {
        outcome.result = Ok(attempt.sink.commit(attempt.task, outputs)?);
        Ok(())
    }
}
