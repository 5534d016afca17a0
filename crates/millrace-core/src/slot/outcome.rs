//! What comes of a task, and who takes what it wrote.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::file_profile::FileProfile;
use super::spawn::{Ending, Usage};
use super::task::Task;

/// Why a task gave no blocks.
#[derive(Debug)]
pub enum Failure {
    /// The tool ended badly.
    Ended(Ending),
    /// The tool was killed because its time was over.
    TimedOut,
    /// The tool was killed because it had done nothing for this time, see [`super::Settings::still_limit`].
    StoodStill(Duration),
    /// The tool was killed because the caller asked.
    Killed,
    /// The tool ended well but did not write this output.
    Missing(PathBuf),
    /// The tool ended well, but what it said or left shows that it did not do its work.
    Said(String),
    /// The tool ended well, but changed this input, relative to the slot.
    Changed(PathBuf),
    /// The tool ended well, but what it wrote is not the part of the whole that it was taken for.
    Misplaced,
    /// Somebody wrote a file that the tool shares with other tasks, perhaps the tool: the task is to run again, without
    /// that file. Never told to the caller.
    Doubtful,
    /// The tool ended well, but what it wrote cannot be a part of the whole output: why.
    Shapeless(String),
    /// The task was run in two ways, and gave other bytes: which. What was not run in both may be wrong.
    Unequal(String),
    /// The program cannot be started.
    Spawn(io::Error),
    /// Placing, collecting or committing failed: our side, not the tool's.
    Io(io::Error),
}

/// What came of a task.
#[derive(Debug)]
pub struct Outcome<R> {
    /// The sink's receipt, or why there is none.
    pub result: Result<R, Failure>,
    /// How the tool itself ended; None if it did not start.
    pub ending: Option<Ending>,
    /// What the tool used.
    pub usage: Usage,
    /// What it did with each file; None: that is not counted, see [`super::Settings::counts_calls`].
    pub files: Option<FileProfile>,
    /// The kernel killed a process of it because memory ran out.
    pub out_of_memory: bool,
    /// Seconds from the start of the process to its end.
    pub wall_seconds: f64,
    /// The first and the last bytes of its standard error, or of its standard output if it failed without a word.
    pub stderr: Vec<u8>,
    /// Files that it left in its working directory and nobody asked for.
    pub extra: Vec<PathBuf>,
    /// It ran in a fork of a tool that had waited for its input.
    pub is_warm: bool,
    /// CPU seconds that such forks saved; below 0: that they cost.
    pub saved_seconds: f64,
    /// Why no task runs so any more, in words, told once.
    pub cold: Option<String>,
}

impl<R> Outcome<R> {
    /// Of a task that has not run.
    pub(super) fn new() -> Self {
        Self {
            result: Err(Failure::Killed),
            ending: None,
            usage: Usage::default(),
            files: None,
            out_of_memory: false,
            wall_seconds: 0.0,
            stderr: vec![],
            extra: vec![],
            is_warm: false,
            saved_seconds: 0.0,
            cold: None,
        }
    }
}

/// Takes the outputs of tasks that ended well.
pub trait Sink: Send + Sync {
    /// What it gives back for them.
    type Receipt: Send;

    /// Looks at what a tool that ended well said; a reason not to believe it, if there is one.
    fn doubt(&self, task: &Task, stderr: &[u8]) -> Option<String>;

    /// `bytes` of a stream without what differs from time to time.
    fn steady(&self, stream: u16, bytes: Vec<u8>) -> Vec<u8>;

    /// Makes the outputs durable, all or none. `outputs` are in the order of the task's.
    ///
    /// # Errors
    /// If it cannot, or they are not what was wanted; the task then counts as not done.
    fn commit(&self, task: &Task, outputs: Vec<(u16, Vec<u8>, File)>) -> Result<Self::Receipt, Failure>;
}
