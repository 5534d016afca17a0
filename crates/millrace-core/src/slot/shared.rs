//! Files of the user's that all tasks share, and what a task has done to them.

use super::outcome::Failure;
use super::place::Place;
use super::task::Task;

impl Place {
    /// What the task has done to files of the user's that are not its own.
    pub(super) fn look_at_shared(&self, task: &Task, turn: Option<u64>) -> Result<(), Failure> {
        let mut private = self.private();
        let changed = match private.restore(&self.root).map_err(Failure::Io)? {
            Some(path) => Some(path),
            None => self.changed_in_view(task).map_err(Failure::Io)?,
        };
        if let Some(path) = changed {
            return Err(Failure::Said(format!(
                "it writes {0}, a file of your folder that all tasks share: move {0} away (each task then writes one of \
                 its own, which is not kept), or name it with --output to collect it",
                path.display()
            )));
        }
        let Some(turn) = turn else { return Ok(()) };
        let shared = self.watch.written_since(turn, |path| private.is_shared(path));
        let mut is_doubtful = false;
        for written in shared {
            is_doubtful |= private.take(&self.root, &written);
        }
        if is_doubtful { Err(Failure::Doubtful) } else { Ok(()) }
    }
}
