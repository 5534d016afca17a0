//! One task in one slot: place the inputs, run the tool, collect what it wrote, clean up.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::area::Area;
use super::family::{Family, Left};
use super::links::Watch;
use super::mark::Mark;
use super::memory::Kills;
use super::private::Private;
use super::spawn::{Ending, Process, Start, Usage, spawn};
use super::still::StillWatch;
use super::text;
use super::words;
use super::written;

/// How an input gets to its place in the working directory.
#[derive(Debug, Clone)]
pub enum Placement {
    /// The batch's bytes, on the same filesystem as the slots.
    Batch {
        /// Where the bytes are.
        from: PathBuf,
        /// Where the tool looks for them, relative to the slot.
        to: PathBuf,
    },
    /// The batch's bytes on standard input.
    Stdin(PathBuf),
    /// A folder that must exist and be empty.
    Folder(PathBuf),
    /// A symbolic link, for what belongs to one task but lies elsewhere.
    Link {
        /// What it names, absolute.
        target: PathBuf,
        /// Where it is, relative to the slot.
        to: PathBuf,
    },
}

/// How an output is found after the tool has ended.
#[derive(Debug, Clone)]
pub enum Collect {
    /// The tool's standard output.
    Stdout,
    /// A file, relative to the slot.
    File(PathBuf),
    /// Every file below a folder, relative to the slot; each is a named block.
    Folder(PathBuf),
}

/// One output stream of a task.
#[derive(Debug, Clone)]
pub struct Output {
    /// Number of the stream.
    pub stream: u16,
    /// Where it is.
    pub collect: Collect,
    /// Name of the block; empty unless the stream is one file a record.
    pub name: Vec<u8>,
    /// Whether the tool may leave it unwritten.
    pub optional: bool,
}

/// One execution of the tool.
#[derive(Debug, Clone)]
pub struct Task {
    /// The caller's number for it.
    pub id: u64,
    /// The program, absolute, if it is not [`super::Settings::exe`].
    pub exe: Option<CString>,
    /// Arguments; [`super::Settings::slot_mark`] in them stands for the slot's directory.
    pub argv: Vec<Vec<u8>>,
    /// What goes where before the start.
    pub placements: Vec<Placement>,
    /// What is collected after the end.
    pub outputs: Vec<Output>,
    /// (private text, the user's text) of this task, besides [`super::Settings::substitutions`].
    pub substitutions: Vec<(Vec<u8>, Vec<u8>)>,
    /// Time after which it is killed.
    pub timeout: Option<Duration>,
    /// No other task is to run beside it.
    pub alone: bool,
}

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
    /// The tool ended well, but what it wrote is not the part of the whole that it was taken for.
    Misplaced,
    /// Somebody wrote a file that the tool shares with other tasks, perhaps the tool: the task is to run again, without
    /// that file. Never told to the caller.
    Doubtful,
    /// The tool ended well, but what it wrote cannot be a part of the whole output: why.
    Shapeless(String),
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
    /// The kernel killed a process of it because memory ran out.
    pub out_of_memory: bool,
    /// Seconds from the start of the process to its end.
    pub wall_seconds: f64,
    /// The first and the last bytes of its standard error, or of its standard output if it failed without a word.
    pub stderr: Vec<u8>,
    /// Files that it left in its working directory and nobody asked for.
    pub extra: Vec<PathBuf>,
}

/// Takes the outputs of tasks that ended well.
pub trait Sink: Send + Sync {
    /// What it gives back for them.
    type Receipt: Send;

    /// Looks at what a tool that ended well said; a reason not to believe it, if there is one.
    fn doubt(&self, task: &Task, stderr: &[u8]) -> Option<String>;

    /// Makes the outputs durable, all or none. `outputs` are in the order of the task's.
    ///
    /// # Errors
    /// If it cannot, or they are not what was wanted; the task then counts as not done.
    fn commit(&self, task: &Task, outputs: Vec<(u16, Vec<u8>, File)>) -> Result<Self::Receipt, Failure>;
}

/// The part of a slot that does not change from task to task.
pub(super) struct Place {
    /// The slot's directory, absolute.
    pub(super) root: PathBuf,
    /// The tool's working directory inside it.
    pub(super) directory: CString,
    /// What belongs in the slot's directory when no task runs.
    pub(super) skeleton: HashSet<PathBuf>,
    pub(super) exe: CString,
    pub(super) environ: Vec<CString>,
    pub(super) namespaces: Arc<Vec<OwnedFd>>,
    pub(super) nice: i32,
    pub(super) ok_statuses: Vec<i32>,
    pub(super) kills: Arc<Kills>,
    /// `/dev/null`, the standard input of most tools.
    pub(super) null: File,
    /// Text in arguments that stands for `root`.
    pub(super) slot_mark: Vec<u8>,
    /// Random text in `root` by which a printed private path is found.
    pub(super) secret: Vec<u8>,
    pub(super) mark: Mark,
    pub(super) family: Family,
    pub(super) area: Arc<Area>,
    pub(super) watch: Arc<Watch>,
    pub(super) private: Mutex<Private>,
    pub(super) patience: Duration,
    pub(super) still_limit: Option<Duration>,
    pub(super) substitutions: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What another thread may do to a running task.
#[derive(Debug, Default)]
pub(super) struct Control {
    pub(super) running: Mutex<Option<libc::pid_t>>,
    pub(super) killed: AtomicBool,
    /// What it writes for people to read.
    words: Mutex<Vec<File>>,
}

impl Control {
    /// Kills the process group of the running task, if any.
    pub(super) fn kill(&self) {
        self.killed.store(true, Ordering::SeqCst);
        self.signal();
    }

    fn is_killed(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    /// Leaves only the beginning and the end of what the running tool has said so far.
    pub(super) fn cut_words(&self) {
        // Where a file cannot be cut, it grows.
        self.words().iter().for_each(|file| drop(words::cut(file)));
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Vec<File>> {
        self.words.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn signal(&self) {
        // The lock is held while the number is used, and the process is reaped only after the number is taken away.
        if let Some(pid) = *self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            // SAFETY: signals a process group whose leader is not reaped yet.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}

/// How often a task runs again because of files that are written meanwhile; those that were are not shared any more.
const MOST_AGAIN: usize = 5;

/// How the processes of a task came to their end.
enum End {
    /// By themselves.
    Whole,
    /// The caller asked for it before all had ended: whatever they did is not counted.
    Cut,
    /// When their time was over.
    Late,
    /// When they had done nothing for this time.
    Still(Duration),
    /// These did nothing any more after the tool itself had ended.
    Idle(String),
    /// This one died of a signal after the tool itself had ended.
    Killed(String),
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
        let mut outcome = Outcome {
            result: Err(Failure::Killed),
            ending: None,
            usage: Usage::default(),
            out_of_memory: false,
            wall_seconds: 0.0,
            stderr: vec![],
            extra: vec![],
        };
        let turn = self.watch.turn();
        if let Err(failure) = self.execute(task, control, sink, doubts.then_some(turn), &mut outcome) {
            outcome.result = Err(failure);
        }
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

    fn private(&self) -> std::sync::MutexGuard<'_, Private> {
        self.private.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// What the task has done to files of the user's that are not its own.
    fn look_at_shared(&self, turn: Option<u64>) -> Result<(), Failure> {
        let mut private = self.private();
        if let Some(path) = private.restore(&self.root).map_err(Failure::Io)? {
            return Err(Failure::Said(format!(
                "it writes {0}, a file of your folder that all tasks share: move {0} away (each task then writes one of \
                 its own, which is not kept), or name it with --output to collect it",
                path.display()
            )));
        }
        let Some(turn) = turn else { return Ok(()) };
        let shared = self.watch.written_since(turn, |path| private.is_shared(path));
        let mut is_doubtful = false;
        for (path, real) in shared {
            is_doubtful |= private.take(&self.root, &path, &real);
        }
        if is_doubtful { Err(Failure::Doubtful) } else { Ok(()) }
    }

    fn execute<S: Sink>(
        &self,
        task: &Task,
        control: &Control,
        sink: &S,
        turn: Option<u64>,
        outcome: &mut Outcome<S::Receipt>,
    ) -> Result<(), Failure> {
        let stdin = self.place(task).map_err(Failure::Io)?;
        let mut stdout = self.scratch().map_err(Failure::Io)?;
        let mut stderr = self.scratch().map_err(Failure::Io)?;
        let argv = task
            .argv
            .iter()
            .map(|argument| self.argument(argument))
            .collect::<io::Result<Vec<_>>>()
            .map_err(Failure::Io)?;
        let mut words = vec![stderr.try_clone().map_err(Failure::Io)?];
        if !task.outputs.iter().any(|output| matches!(output.collect, Collect::Stdout)) {
            words.push(stdout.try_clone().map_err(Failure::Io)?);
        }
        *control.words() = words;
        let begun = Instant::now();
        let watch = self.kills.watch();
        let process = {
            let mut running = control.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let process = spawn(&Start {
                exe: task.exe.as_ref().unwrap_or(&self.exe),
                argv: &argv,
                environ: &self.environ,
                directory: &self.directory,
                namespaces: &self.namespaces,
                stdin: stdin.as_ref().unwrap_or(&self.null),
                stdout: &stdout,
                stderr: &stderr,
                nice: self.nice,
                mark: self.mark,
            })
            .map_err(Failure::Spawn)?;
            *running = Some(process.pid);
            process
        };
        let waited = self.wait(process, task.timeout, control, &mut outcome.usage);
        control.words().clear();
        // What we killed ourselves says nothing of the memory.
        let by_itself = waited.as_ref().ok().filter(|(_, end)| !matches!(end, End::Late | End::Still(_) | End::Cut));
        outcome.out_of_memory = by_itself.is_some_and(|(ending, _)| watch.is_hit(*ending));
        drop(watch);
        let (ending, end) = waited.map_err(Failure::Io)?;
        outcome.ending = Some(ending);
        outcome.wall_seconds = begun.elapsed().as_secs_f64();
        let pairs = self.substitutions_of(task);
        outcome.stderr = self.said(&mut stderr, &pairs).map_err(Failure::Io)?;
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
            if outcome.stderr.is_empty() {
                outcome.stderr = self.said(&mut stdout, &pairs).map_err(Failure::Io)?;
            }
            return Err(Failure::Ended(ending));
        }
        if outcome.out_of_memory {
            return Err(Failure::Said("it did not notice a kill".to_owned()));
        }
        if let End::Idle(names) = end {
            return Err(Failure::Said(format!(
                "it left processes that did nothing for {:.0} s, so nobody knows whether its result is whole: {names}; \
                 let it wait for what it starts (`wait` in a shell script)",
                self.patience.as_secs_f64()
            )));
        }
        if let End::Killed(words) = end {
            return Err(Failure::Said(format!("of what it left at work, {words}")));
        }
        if let Some(doubt) = sink.doubt(task, &outcome.stderr) {
            return Err(Failure::Said(doubt));
        }
        self.look_at_shared(turn)?;
        let outputs = self.collect(task, stdout, &pairs)?;
        outcome.result = Ok(sink.commit(task, outputs)?);
        Ok(())
    }

    /// Waits for the end of `process` and of all that it started, and reaps them. They are killed when time is over, and
    /// when the tool itself ended badly.
    fn wait(
        &self,
        process: Process,
        timeout: Option<Duration>,
        control: &Control,
        usage: &mut Usage,
    ) -> io::Result<(Ending, End)> {
        let pid = process.pid;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        // Asked to be killed between two looks: the caller may have come before the number was there.
        if control.is_killed() {
            control.signal();
        }
        let cut = self.wait_for_tool(&process, deadline);
        // A process that cannot be watched is not left running.
        if !matches!(cut, Ok(None)) {
            control.signal();
            process.ended_within(None)?;
        }
        let mut inherited = Usage::default();
        let (left, crashed) = self.family.look_first(&mut inherited)?;
        let leaves = !left.is_empty();
        let (cut, trouble) = match cut {
            Ok(cut) => (cut, None),
            Err(error) => (None, Some(error)),
        };
        let mut end = match (cut, crashed) {
            (Some(cut), _) => cut,
            (None, Some(words)) => End::Killed(words),
            (None, None) => End::Whole,
        };
        let goes_on = leaves && matches!(end, End::Whole) && trouble.is_none();
        if goes_on && process.ending()?.is_good(&self.ok_statuses) {
            end = match self.family.wait(left, self.patience, deadline, || !control.is_killed(), &mut inherited)? {
                Left::Nothing => End::Whole,
                Left::Late => End::Late,
                Left::Idle(names) => End::Idle(names),
                Left::Killed(words) => End::Killed(words),
            };
        }
        // What ended after the caller had asked may have been cut by that, however well it ended.
        if control.is_killed() {
            end = End::Cut;
        }
        // Done before reaping, while the number is ours.
        // SAFETY: as in Control::signal.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        *control.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        let (ending, used) = process.reap()?;
        *usage = used;
        if leaves {
            self.family.kill(&mut inherited)?;
        }
        usage.add(inherited);
        trouble.map_or(Ok((ending, end)), Err)
    }

    /// Waits for the end of the tool itself; None if it came, else why it is to be brought about.
    fn wait_for_tool(&self, process: &Process, deadline: Option<Instant>) -> io::Result<Option<End>> {
        let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let Some(limit) = self.still_limit else {
            return Ok(if process.ended_within(left())? { None } else { Some(End::Late) });
        };
        let mut watch = StillWatch::of(&self.family, process.pid, limit);
        loop {
            let pause = left().map_or(watch.pause(), |left| left.min(watch.pause()));
            if process.ended_within(Some(pause))? {
                return Ok(None);
            }
            if left().is_some_and(|left| left.is_zero()) {
                return Ok(Some(End::Late));
            }
            if watch.stands_still() {
                return Ok(Some(End::Still(limit)));
            }
        }
    }

    /// Puts the inputs in their places; returns the standard input, if there is one.
    fn place(&self, task: &Task) -> io::Result<Option<File>> {
        let mut stdin = None;
        for placement in &task.placements {
            match placement {
                Placement::Batch { from, to } => fs_err::hard_link(from, self.root.join(to))?,
                Placement::Stdin(from) => stdin = Some(fs_err::File::open(from)?.into_file()),
                Placement::Folder(path) => fs_err::create_dir_all(self.root.join(path))?,
                Placement::Link { target, to } => fs_err::os::unix::fs::symlink(target, self.root.join(to))?,
            }
        }
        Ok(stdin)
    }

    /// A new file without a name, where the slots are: it goes when nobody has it open any more.
    fn scratch(&self) -> io::Result<File> {
        let folder = self.root.parent().unwrap_or(&self.root);
        // Not by way of `fs_err`, which hides the number of an error.
        match File::options().read(true).write(true).custom_flags(libc::O_TMPFILE).open(folder) {
            Ok(file) => return Ok(file),
            // Not every filesystem can; an old kernel takes it for a folder opened to write.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) => {}
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display()))),
        }
        let mut path = self.root.clone().into_os_string();
        path.push(".scratch");
        let mut options = fs_err::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path)?;
        fs_err::remove_file(path)?;
        Ok(file.into_file())
    }

    fn argument(&self, argument: &[u8]) -> io::Result<CString> {
        CString::new(text::in_slot(argument, &self.slot_mark, &self.root)).map_err(io::Error::from)
    }

    /// All substitutions for the outputs of `task`, longest private text first.
    fn substitutions_of(&self, task: &Task) -> Cow<'_, text::Substitutions> {
        if task.substitutions.is_empty() {
            return Cow::Borrowed(&self.substitutions);
        }
        let own = task.substitutions.iter();
        let own = own.map(|(private, user)| (text::in_slot(private, &self.slot_mark, &self.root), user.clone()));
        let mut all: Vec<_> = own.chain(self.substitutions.iter().cloned()).collect();
        all.sort_by_key(|(private, _)| std::cmp::Reverse(private.len()));
        Cow::Owned(all)
    }

    /// The beginning and the end of what the tool said, with the user's paths in it.
    fn said(&self, file: &mut File, pairs: &text::Substitutions) -> io::Result<Vec<u8>> {
        let mut bytes = words::read(file)?;
        if memchr::memmem::find(&bytes, &self.secret).is_none() {
            return Ok(bytes);
        }
        // For a person to read: whatever cannot be put back stays.
        let mut ours = self.scratch()?;
        ours.write_all(&bytes)?;
        if let Ok(mut restored) = text::restore(ours, &self.secret, pairs, || self.scratch()) {
            bytes.clear();
            restored.seek(SeekFrom::Start(0))?;
            restored.read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    fn collect(
        &self,
        task: &Task,
        stdout: File,
        pairs: &text::Substitutions,
    ) -> Result<Vec<(u16, Vec<u8>, File)>, Failure> {
        let mut stdout = Some(stdout);
        let mut found = Vec::with_capacity(task.outputs.len());
        for output in &task.outputs {
            match &output.collect {
                Collect::Stdout => {
                    if let Some(file) = stdout.take() {
                        found.push((output.stream, output.name.clone(), file));
                    }
                }
                Collect::File(path) => match written::open(&self.root, path)? {
                    Some(file) => found.push((output.stream, output.name.clone(), file)),
                    None if output.optional => {}
                    None => return Err(Failure::Missing(path.clone())),
                },
                Collect::Folder(path) => {
                    let top = self.root.join(path);
                    for name in files_below(&top).map_err(Failure::Io)? {
                        let below = path.join(&name);
                        let file = written::open(&self.root, &below)?.ok_or(Failure::Missing(below))?;
                        found.push((output.stream, name.into_os_string().into_vec(), file));
                    }
                }
            }
        }
        found
            .into_iter()
            .map(|(stream, name, file)| {
                Ok((stream, name, text::restore(file, &self.secret, pairs, || self.scratch())?))
            })
            .collect::<io::Result<_>>()
            .map_err(Failure::Io)
    }

    /// Removes all that is not in the skeleton; returns what nobody had asked for.
    fn clean(&self, task: &Task) -> io::Result<Vec<PathBuf>> {
        let mut wanted: BTreeSet<&Path> = BTreeSet::new();
        for placement in &task.placements {
            match placement {
                Placement::Batch { to, .. } | Placement::Link { to, .. } | Placement::Folder(to) => wanted.insert(to),
                Placement::Stdin(_) => false,
            };
        }
        for output in &task.outputs {
            match &output.collect {
                Collect::File(path) | Collect::Folder(path) => wanted.insert(path),
                Collect::Stdout => false,
            };
        }
        let mut extra = Vec::new();
        let n_kept = self.clean_below(Path::new(""), &wanted, &mut extra)?;
        let mut private = self.private();
        if n_kept < self.skeleton.len() + private.n_more() {
            // The tool removed some of it, or put something else in its place.
            private.relink(&self.root)?;
            for path in self.skeleton.iter().filter(|path| std::fs::symlink_metadata(self.root.join(path)).is_err()) {
                fs_err::create_dir_all(self.root.join(path))?;
            }
        }
        Ok(extra)
    }

    /// Returns how many entries belong there.
    fn clean_below(&self, below: &Path, wanted: &BTreeSet<&Path>, extra: &mut Vec<PathBuf>) -> io::Result<usize> {
        let mut n_kept = 0;
        for entry in std::fs::read_dir(self.root.join(below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if self.belongs(&path, &entry, kind) {
                n_kept += 1;
                if kind.is_dir() {
                    n_kept += self.clean_below(&path, wanted, extra)?;
                }
                continue;
            }
            if !wanted.contains(path.as_path()) && !kind.is_socket() && !kind.is_fifo() {
                extra.push(path.clone());
            }
            if kind.is_dir() { fs_err::remove_dir_all(entry.path())? } else { fs_err::remove_file(entry.path())? }
        }
        Ok(n_kept)
    }

    fn belongs(&self, path: &Path, entry: &std::fs::DirEntry, kind: std::fs::FileType) -> bool {
        let private = self.private();
        (self.skeleton.contains(path) || private.keeps(path)) && private.is_intact(path, entry, kind)
    }
}

fn files_below(top: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs_err::read_dir(top.join(&folder))? {
            let entry = entry?;
            let name = folder.join(entry.file_name());
            if entry.file_type()?.is_dir() { folders.push(name) } else { found.push(name) }
        }
    }
    found.sort();
    Ok(found)
}
