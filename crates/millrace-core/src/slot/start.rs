//! Starting the tool of a task in its slot.

use std::fs::File;
use std::io;

use super::control::Control;
use super::outcome::Failure;
use super::place::Place;
use super::spawn::{Process, Start, spawn};
use super::task::Task;
use super::view::OldNamespaces;

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
        let own = task.own_folder.as_ref().map(|own| self.environ_in(own));
        // Held until the number is there, so that whoever asks for a kill sees it.
        let mut running = control.running();
        let process = spawn(&Start {
            exe: task.exe.as_ref().unwrap_or(&self.exe),
            argv: &argv,
            environ: own.as_deref().unwrap_or(&self.environ),
            trial: None,
            directory: task.own_folder.as_ref().map_or(&self.directory, |own| &own.directory),
            namespaces: &self.namespaces,
            view: self.calls.as_ref(),
            stdin,
            stdout,
            stderr,
            nice: self.nice,
            mark: self.mark,
        })
        .map_err(Failure::Spawn)?;
        *running = Some(process.pid);
        if self.calls.is_some() {
            *self.namespace() = OldNamespaces::of_process(process.pid);
        }
        Ok(process)
    }
}
