//! Starting a warm tool.

use std::ffi::{CString, OsStr};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Seek};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::control::Control;
use super::super::live::cpu_seconds_of;
use super::super::outcome::Failure;
use super::super::place::Place;
use super::super::preloaded;
use super::super::spawn::{Process, Start, Usage, spawn};
use super::super::task::{Placement, Task};
use super::greet::greet;
use super::held::Held;
use super::look::{STARTED, Said, look};
use super::{LIBRARY, order};

/// A tool that waits at its first touch of the input.
#[derive(Debug)]
pub(in super::super) struct Server {
    pub(super) process: Process,
    pub(super) link: UnixStream,
    pub(super) argv: Vec<CString>,
    pub(super) held: Vec<Held>,
    pub(super) stdout: File,
    pub(super) stderr: File,
    /// CPU that its start took.
    pub(super) cpu_seconds: f64,
    /// Tasks that ended well in forks of it.
    pub(super) n_done: u64,
    /// Of these, that gave the same bytes in processes of their own.
    pub(super) n_equal: u64,
    /// It was asked to fork, and nobody knows whether it has.
    pub(super) is_lost: bool,
}

/// Why there is none.
pub(super) enum Cold {
    /// The tool cannot be warm, in words.
    Never(String),
    /// Our side failed, or the run is to stop.
    Failed(Failure),
}

impl From<io::Error> for Cold {
    fn from(error: io::Error) -> Self {
        Self::Never(format!("it cannot be prepared: {error}"))
    }
}

/// A tool that waits forks within this time, or something is wrong with it.
const MOST_FORKING: Duration = Duration::from_secs(60);

impl Place {
    /// Starts the tool of `task`, whose input is not there yet, and waits until it touches it.
    pub(super) fn begin(&self, task: &Task, control: &Control) -> Result<Server, Cold> {
        if LIBRARY.is_empty() {
            return Err(Cold::Never("there is no such thing on this kind of machine".to_owned()));
        }
        let inputs = self.make_ready(task)?;
        let name = format!("millrace-{}-{}", String::from_utf8_lossy(&self.secret), self.number);
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        let (argv, environ) = (self.warm_argv(task)?, self.warm_environ(&name, &inputs)?);
        let (stdout, stderr) = (self.scratch()?, self.scratch()?);
        let start = Start {
            exe: &self.exe,
            argv: &argv,
            environ: &environ,
            trial: None,
            directory: &self.directory,
            namespaces: &self.namespaces,
            view: None,
            stdin: &self.null,
            stdout: &stdout,
            stderr: &stderr,
            nice: self.nice,
            mark: self.mark.of_warm(),
        };
        let process = launch(&start, control)?;
        let found = greet(&process, &listener, task.timeout);
        let found = found.and_then(|link| self.look(&process, link, &stdout, &stderr));
        *control.running() = None;
        match found {
            Ok((link, held)) if !control.is_killed() => {
                let cpu_seconds = cpu_seconds_of(process.pid).unwrap_or(0.0);
                let (n_done, n_equal, is_lost) = (0, 0, false);
                Ok(Server { process, link, argv, held, stdout, stderr, cpu_seconds, n_done, n_equal, is_lost })
            }
            other => {
                self.bury_warm(process);
                let words = other.err().unwrap_or_default();
                Err(if control.is_killed() { Cold::Failed(Failure::Killed) } else { Cold::Never(words) })
            }
        }
    }

    /// Makes the folders that the task wants to be there; where its inputs are going to be.
    fn make_ready(&self, task: &Task) -> Result<Vec<PathBuf>, Cold> {
        let never = |words: &str| Err(Cold::Never(words.to_owned()));
        let mut inputs = vec![];
        for placement in &task.placements {
            match placement {
                Placement::Batch { to, .. } | Placement::Packed { to: Some(to), .. } => inputs.push(self.root.join(to)),
                Placement::Folder(path) => fs_err::create_dir_all(self.root.join(path))?,
                Placement::Stdin(_) | Placement::Ended | Placement::Packed { to: None, .. } => {
                    return never("it reads its standard input");
                }
                Placement::Before { .. } | Placement::Link { .. } => {
                    return never("it reads files that are another for each task");
                }
            }
        }
        if inputs.is_empty() { never("its inputs are whole files") } else { Ok(inputs) }
    }

    /// The arguments of the tool in this slot.
    pub(super) fn warm_argv(&self, task: &Task) -> io::Result<Vec<CString>> {
        task.argv.iter().map(|argument| self.argument(argument)).collect()
    }

    /// The tool's environment, with our library and what that is to know.
    fn warm_environ(&self, name: &str, inputs: &[PathBuf]) -> io::Result<Vec<CString>> {
        let mut told = format!("MILLRACE_WARM={}/{name}", std::process::id()).into_bytes();
        for input in inputs {
            let about = fs_err::metadata(input.parent().unwrap_or(Path::new("/")))?;
            let mut folder = String::new();
            let _ = write!(folder, "/{}/{}/", about.dev(), about.ino());
            told.extend(folder.into_bytes());
            told.extend(input.file_name().map_or(&b""[..], OsStr::as_bytes));
        }
        preloaded::environ(&self.environ, self.warmth.library()?.as_bytes(), told)
    }

    /// Whether the tool may be forked, and what it has open.
    fn look(
        &self,
        process: &Process,
        mut link: UnixStream,
        stdout: &File,
        stderr: &File,
    ) -> Result<(UnixStream, Vec<Held>), String> {
        let lost = |error: io::Error| format!("it was lost: {error}");
        link.set_nonblocking(false).map_err(lost)?;
        link.set_read_timeout(Some(MOST_FORKING)).map_err(lost)?;
        let number = order::number(&mut link).map_err(lost)?;
        if !self.warm_family().look(&mut Usage::default()).map_err(lost)?.is_empty() {
            return Err(STARTED.to_owned());
        }
        let directory = Path::new(OsStr::from_bytes(self.directory.to_bytes()));
        let held = look(process.pid, number, &self.root, directory, &Said { stdout, stderr })?;
        let written: Vec<_> = held.iter().filter_map(Held::path).collect();
        match self.stray(Path::new(""), &written).map_err(lost)? {
            Some(path) => Err(format!("it makes {} before it reads its input", path.display())),
            None => Ok((link, held)),
        }
    }

    /// The first entry of the slot that is neither its own nor one of `written`; empty folders are made for tasks.
    fn stray(&self, below: &Path, written: &[&Path]) -> io::Result<Option<PathBuf>> {
        for entry in fs::read_dir(self.root.join(below))? {
            let entry = entry?;
            let (path, kind) = (below.join(entry.file_name()), entry.file_type()?);
            if kind.is_dir() {
                if let Some(found) = self.stray(&path, written)? {
                    return Ok(Some(found));
                }
            } else if !self.belongs(&path, &entry, kind) && !written.contains(&path.as_path()) {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }
}

/// Starts the tool; whoever asks `control` for a kill from then on reaches it.
fn launch(start: &Start<'_>, control: &Control) -> Result<Process, Cold> {
    let mut running = control.running();
    let process = spawn(start).map_err(|error| Cold::Failed(Failure::Spawn(error)))?;
    *running = Some(process.pid);
    drop(running);
    if control.is_killed() {
        control.signal();
    }
    Ok(process)
}

impl Server {
    /// Whether it has ended, whoever ended it.
    pub(super) fn has_ended(&self) -> bool {
        self.process.ended_within(Some(Duration::ZERO)).unwrap_or(true)
    }

    /// What it has said so far goes before what a fork says.
    pub(super) fn repeat(&mut self, stdout: &mut File, stderr: &mut File) -> io::Result<()> {
        for (from, to) in [(&mut self.stdout, stdout), (&mut self.stderr, stderr)] {
            from.rewind()?;
            io::copy(from, to)?;
        }
        Ok(())
    }
}
