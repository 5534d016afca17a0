//! Starting the tool of a task in its slot.

use std::fs::File;
use std::io;

use super::control::Control;
use super::outcome::Failure;
use super::place::Place;
use super::spawn::{Process, Start, spawn};
use super::task::Task;

impl Place {
    /// Starts the tool; whoever asks `control` for a kill from then on reaches it.
    pub(super) fn start(
        &self,
        task: &Task,
        control: &Control,
        stdin: &File,
        stdout: &File,
        stderr: &File,
    ) -> Result<Process, Failure> {
        let argv = task.argv.iter().map(|argument| self.argument(argument)).collect::<io::Result<Vec<_>>>();
        let argv = argv.map_err(Failure::Io)?;
        // Held until the number is there, so that whoever asks for a kill sees it.
        let mut running = control.running();
        let process = spawn(&Start {
            exe: task.exe.as_ref().unwrap_or(&self.exe),
            argv: &argv,
            environ: &self.environ,
            directory: &self.directory,
            namespaces: &self.namespaces,
            stdin,
            stdout,
            stderr,
            nice: self.nice,
            mark: self.mark,
        })
        .map_err(Failure::Spawn)?;
        *running = Some(process.pid);
        Ok(process)
    }
}
