use std::ffi::CString;
use std::io::{self, Read, Write};
use std::os::fd::{IntoRawFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_core::candidates::Within;
use millrace_core::commit::{JournalSink, Patch, Purpose, Stream};
use millrace_core::journal as core_journal;
use millrace_core::record::{Cutter, Form, Format, Packing, lengths};
use millrace_core::slot::{self, Collect, Ending, Event, Failure, IoCounts, Lengths, Output, Pack, Placement, Task};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{io_error, is_disk_full};
use crate::journal::{Journal, TaskRef, head};
use crate::writer::copied;

/// What a [`PoolEvent`] tells of.
#[pyclass(eq, frozen)]
#[derive(Clone, Copy, PartialEq)]
enum EventKind {
    Started,
    Ended,
    Woken,
}

/// How a compressed batch is compressed: as the input is, in as many members, or to other bytes.
#[pyclass(eq, frozen, from_py_object)]
#[derive(Clone, Copy, PartialEq)]
enum PackedForm {
    First,
    Members,
    Again,
}

impl From<PackedForm> for Form {
    fn from(form: PackedForm) -> Self {
        match form {
            PackedForm::First => Self::First,
            PackedForm::Members => Self::Members,
            PackedForm::Again => Self::Again,
        }
    }
}

/// What is placed in a slot before the tool starts; `to` is relative to the slot.
#[pyclass(frozen, name = "Placement", from_py_object)]
#[derive(Clone)]
enum SlotPlacement {
    /// A batch in place of the input file.
    Batch { source: PathBuf, to: PathBuf },
    /// A batch on standard input.
    Stdin { source: PathBuf },
    /// A pipe at its end on standard input.
    EndedStdin {},
    /// An output file as it was before the run; `whole`: for a task that is the serial run itself.
    EarlierOutput { source: PathBuf, to: PathBuf, whole: bool },
    /// An empty folder.
    Folder { to: PathBuf },
    /// A symbolic link.
    Link { target: PathBuf, to: PathBuf },
    /// A batch that is compressed; without `to`, on standard input.
    Packed { source: PathBuf, to: Option<PathBuf>, compression: String, form: PackedForm },
}

impl TryFrom<SlotPlacement> for Placement {
    type Error = PyErr;

    fn try_from(place: SlotPlacement) -> PyResult<Self> {
        Ok(match place {
            SlotPlacement::Batch { source, to } => Self::Batch { from: source, to },
            SlotPlacement::Stdin { source } => Self::Stdin(source),
            SlotPlacement::EndedStdin {} => Self::Ended,
            SlotPlacement::EarlierOutput { source, to, whole } => Self::Before { from: source, to, whole },
            SlotPlacement::Folder { to } => Self::Folder(to),
            SlotPlacement::Link { target, to } => Self::Link { target, to },
            SlotPlacement::Packed { source, to, compression, form } => {
                let packing = Packing::new(&compression, form.into())
                    .ok_or_else(|| PyValueError::new_err(format!("unknown compression {compression}")))?;
                Self::Packed { from: source, to, packing: Arc::new(AsTheInput(packing)) }
            }
        })
    }
}

/// Where a tool writes an output.
#[pyclass(frozen, from_py_object)]
#[derive(Clone)]
enum OutputPlace {
    Stdout {},
    File { path: PathBuf },
    Folder { path: PathBuf },
}

impl From<OutputPlace> for Collect {
    fn from(place: OutputPlace) -> Self {
        match place {
            OutputPlace::Stdout {} => Self::Stdout,
            OutputPlace::File { path } => Self::File(path),
            OutputPlace::Folder { path } => Self::Folder(path),
        }
    }
}

/// Calls, bytes, nanoseconds, jumps, and calls of each class of sizes.
type Calls = (u64, u64, u64, u64, [u64; slot::SIZE_CLASSES]);

/// A path, how often and how long it was opened, seeks, bytes mapped, and calls that read and that wrote.
type FileCalls = (String, u64, u64, u64, u64, Calls, Calls);

fn calls(counts: &slot::CallCounts) -> Calls {
    (counts.calls, counts.bytes, counts.nanoseconds, counts.jumps, counts.sizes)
}

/// One thing that happened in a pool.
#[pyclass(frozen)]
struct PoolEvent {
    event: Event<core_journal::TaskRef>,
    journal: Arc<Path>,
}

impl PoolEvent {
    fn outcome(&self) -> Option<&slot::Outcome<core_journal::TaskRef>> {
        match &self.event {
            Event::Ended { outcome, .. } => Some(outcome.as_ref()),
            Event::Started { .. } | Event::Woken => None,
        }
    }

    fn failure(&self) -> Option<&Failure> {
        self.outcome().and_then(|outcome| outcome.result.as_ref().err())
    }
}

#[pymethods]
impl PoolEvent {
    #[getter]
    fn kind(&self) -> EventKind {
        match self.event {
            Event::Started { .. } => EventKind::Started,
            Event::Ended { .. } => EventKind::Ended,
            Event::Woken => EventKind::Woken,
        }
    }

    #[getter]
    fn id(&self) -> u64 {
        match self.event {
            Event::Started { id, .. } | Event::Ended { id, .. } => id,
            Event::Woken => 0,
        }
    }

    #[getter]
    fn slot(&self) -> usize {
        match self.event {
            Event::Started { slot, .. } | Event::Ended { slot, .. } => slot,
            Event::Woken => 0,
        }
    }

    /// Seconds since it happened.
    #[getter]
    fn ago_seconds(&self) -> f64 {
        match self.event {
            Event::Started { at, .. } | Event::Ended { at, .. } => at.elapsed().as_secs_f64(),
            Event::Woken => 0.0,
        }
    }

    /// `done`, `failed`, `timeout`, `still`, `killed`, `missing`, `changed`, `said`, `misplaced`, `shapeless`, `unequal`, `spawn` or `io`; empty unless ended.
    #[getter]
    fn status(&self) -> &'static str {
        match self.outcome().map(|outcome| &outcome.result) {
            None => "",
            Some(Ok(_)) => "done",
            Some(Err(Failure::Ended(_))) => "failed",
            Some(Err(Failure::TimedOut)) => "timeout",
            Some(Err(Failure::StoodStill(_))) => "still",
            Some(Err(Failure::Killed)) => "killed",
            Some(Err(Failure::Missing(_))) => "missing",
            Some(Err(Failure::Changed(_))) => "changed",
            Some(Err(Failure::Said(_))) => "said",
            Some(Err(Failure::Misplaced)) => "misplaced",
            Some(Err(Failure::Doubtful)) => unreachable!("a slot runs such a task again"),
            Some(Err(Failure::Shapeless(_))) => "shapeless",
            Some(Err(Failure::Unequal(_))) => "unequal",
            Some(Err(Failure::Spawn(_))) => "spawn",
            Some(Err(Failure::Io(_))) => "io",
        }
    }

    #[getter]
    fn exit_status(&self) -> Option<i32> {
        match self.outcome()?.ending {
            Some(Ending::Exited(status)) => Some(status),
            _ => None,
        }
    }

    #[getter]
    fn signal(&self) -> Option<i32> {
        match self.outcome()?.ending {
            Some(Ending::Signalled(signal)) => Some(signal),
            _ => None,
        }
    }

    /// The missing file, why the tool is not believed, or the error of the operating system.
    #[getter]
    fn detail(&self) -> String {
        match self.failure() {
            Some(Failure::Missing(path) | Failure::Changed(path)) => path.display().to_string(),
            Some(Failure::Said(words) | Failure::Shapeless(words) | Failure::Unequal(words)) => words.clone(),
            Some(Failure::Spawn(error) | Failure::Io(error)) => error.to_string(),
            Some(Failure::StoodStill(limit)) => {
                format!("no CPU time, no reads, no writes for {} s", limit.as_secs_f64())
            }
            _ => String::new(),
        }
    }

    #[getter]
    fn disk_full(&self) -> bool {
        matches!(self.failure(), Some(Failure::Io(error)) if is_disk_full(error))
    }

    #[getter]
    fn cpu_seconds(&self) -> f64 {
        self.outcome().map_or(0.0, |outcome| outcome.usage.cpu_seconds)
    }

    #[getter]
    fn wall_seconds(&self) -> f64 {
        self.outcome().map_or(0.0, |outcome| outcome.wall_seconds)
    }

    /// Whether the kernel killed a process of it because memory ran out.
    #[getter]
    fn out_of_memory(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.out_of_memory)
    }

    /// Tasks of this pool that were at work at once while it was, itself included, at most.
    #[getter]
    fn side_by_side(&self) -> usize {
        match self.event {
            Event::Ended { side_by_side, .. } => side_by_side,
            Event::Started { .. } | Event::Woken => 0,
        }
    }

    #[getter]
    fn peak_rss_bytes(&self) -> u64 {
        self.outcome().map_or(0, |outcome| outcome.usage.peak_rss_bytes)
    }

    /// Bytes read and written, calls for both, bytes from and to disks, page faults that waited for a disk, seconds of
    /// waiting for disks, and processes of other users: of all its processes.
    #[getter]
    fn io(&self) -> (u64, u64, u64, u64, u64, u64, u64, f64, u64) {
        let io = self.outcome().map_or_else(IoCounts::default, |outcome| outcome.usage.io);
        let disk = (io.disk_read_bytes, io.disk_written_bytes, io.major_faults, io.disk_wait_seconds);
        (io.read_bytes, io.written_bytes, io.reads, io.writes, disk.0, disk.1, disk.2, disk.3, io.n_hidden)
    }

    /// What it did with each file, and processes heard of, those without counts of their streams, and files not counted;
    /// None: calls are not counted.
    #[getter]
    fn calls(&self) -> Option<(Vec<FileCalls>, u64, u64, u64)> {
        let profile = self.outcome()?.files.as_ref()?;
        let files = profile.files.iter().map(|file| {
            let path = String::from_utf8_lossy(&file.path).into_owned();
            (
                path,
                file.opens,
                file.open_nanoseconds,
                file.seeks,
                file.mapped_bytes,
                calls(&file.read),
                calls(&file.written),
            )
        });
        Some((files.collect(), profile.n_processes, profile.n_streamless, profile.n_lost))
    }

    /// The beginning and the end of what the tool said.
    #[getter]
    fn stderr<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.outcome().map_or(&[], |outcome| outcome.stderr.as_slice()))
    }

    /// Files that the tool wrote and nobody had asked for, relative to the slot.
    #[getter]
    fn extra(&self) -> Vec<String> {
        let extra = self.outcome().map_or(&[][..], |outcome| outcome.extra.as_slice());
        extra.iter().map(|path| path.display().to_string()).collect()
    }

    /// Whether it ran in a fork of a tool that had waited for its input.
    #[getter]
    fn is_warm(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.is_warm)
    }

    /// CPU seconds that such forks saved; below 0: that they cost.
    #[getter]
    fn saved_seconds(&self) -> f64 {
        self.outcome().map_or(0.0, |outcome| outcome.saved_seconds)
    }

    /// Why no task runs so any more; empty: nothing new.
    #[getter]
    fn cold(&self) -> String {
        self.outcome().and_then(|outcome| outcome.cold.clone()).unwrap_or_default()
    }

    /// What was committed.
    #[getter]
    fn task(&self) -> Option<TaskRef> {
        match self.outcome().map(|outcome| &outcome.result) {
            Some(Ok(task)) => Some(TaskRef(task.clone(), self.journal.clone())),
            _ => None,
        }
    }
}

/// The slots of this node; see `millrace.node.local_slots`.
#[pyclass(frozen)]
struct Pool {
    pool: Mutex<Option<Arc<slot::Pool<core_journal::TaskRef>>>>,
    sink: Arc<JournalSink>,
    journal: Arc<Path>,
}

/// What a tool leaves running may do nothing for so long before its task fails.
const PATIENCE: Duration = Duration::from_secs(10);

type Tokens = Vec<Vec<u8>>;

impl Pool {
    fn get(&self) -> PyResult<Arc<slot::Pool<core_journal::TaskRef>>> {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        pool.clone().ok_or_else(|| PyValueError::new_err("the pool is closed"))
    }

    fn enqueue(&self, task: Task, purpose: Purpose, urgent: bool) -> PyResult<()> {
        self.sink.expect(task.id, purpose);
        self.get()?.submit(task, urgent);
        Ok(())
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (journal, *, roots, directory, skeleton, exe, environ, nice, slot_mark, secret, substitutions, streams, records_said, failures_said, ok_statuses=vec![], namespaces=vec![], kills=None, links=vec![], ignored=vec![], view=None, still_seconds=None, records=None, counts_calls=false, reread_suffix=vec![]))]
    #[allow(clippy::too_many_arguments)] // a constructor by keyword; a struct would only say it twice
    fn new(
        journal: &Journal,
        roots: Vec<PathBuf>,
        directory: PathBuf,
        skeleton: Vec<PathBuf>,
        exe: PathBuf,
        environ: Tokens,
        nice: i32,
        slot_mark: Vec<u8>,
        secret: Vec<u8>,
        substitutions: Vec<(Vec<u8>, Vec<u8>)>,
        streams: Vec<(String, String, Vec<String>)>,
        records_said: &str,
        failures_said: Vec<String>,
        ok_statuses: Vec<i32>,
        namespaces: Vec<RawFd>,
        kills: Option<(PathBuf, bool)>,
        links: Vec<(PathBuf, PathBuf)>,
        ignored: Vec<PathBuf>,
        view: Option<ViewParts>,
        still_seconds: Option<f64>,
        records: Option<(String, String, String)>,
        counts_calls: bool,
        reread_suffix: Vec<u8>,
    ) -> PyResult<Self> {
        // The caller's descriptors stay the caller's.
        let namespaces = namespaces.into_iter().map(copied).collect::<io::Result<Vec<_>>>().map_err(io_error)?;
        let streams = streams.into_iter().map(|(name, join, volatile)| Stream { name, join, volatile }).collect();
        let sink = JournalSink::new(journal.0.clone(), streams, records_said, &failures_said);
        let sink = Arc::new(sink.map_err(|error| PyValueError::new_err(error.to_string()))?);
        let settings = slot::Settings {
            roots,
            directory,
            skeleton: skeleton.into_iter().collect(),
            links: slot::Links { links, ignored },
            view: view.map(view_of),
            exe: CString::new(exe.into_os_string().into_vec())?,
            environ,
            namespaces: Arc::new(namespaces),
            nice,
            ok_statuses,
            kills: kills.map(|(path, own)| slot::Counter { path, own }),
            slot_mark,
            secret,
            patience: PATIENCE,
            still_limit: duration(still_seconds)?,
            substitutions,
            counts_calls,
            reread_suffix,
            records: records.map(lengths_of).transpose()?,
        };
        let pool = slot::Pool::new(&settings, sink.clone()).map_err(io_error)?;
        Ok(Self { pool: Mutex::new(Some(Arc::new(pool))), sink, journal: journal.0.path().clone() })
    }

    /// Queues one execution of the tool.
    ///
    /// `outputs`: (stream, place, block name, optional).
    /// With `within` = (column of the subject, of the bits, of the E-value if subjects are ranked by it, lowest rank,
    /// highest) they are committed if their rows are in that range.
    #[pyo3(signature = (id, argv, placements, outputs, *, timeout_seconds, first, last, attempt, inputs, urgent,
        fragment=0, exe=None, substitutions=vec![], patches=vec![], within=None,
        alone=false, warm=false, cpu_limit_seconds=None, own_folder=None))]
    #[allow(clippy::too_many_arguments)] // as above
    fn submit(
        &self,
        id: u64,
        argv: Tokens,
        placements: Vec<SlotPlacement>,
        outputs: Vec<(u16, OutputPlace, Vec<u8>, bool)>,
        timeout_seconds: Option<f64>,
        first: u64,
        last: u64,
        attempt: u32,
        inputs: Vec<(u64, u32)>,
        urgent: bool,
        fragment: u32,
        exe: Option<PathBuf>,
        substitutions: Vec<(Vec<u8>, Vec<u8>)>,
        patches: Vec<(u16, String, PathBuf)>,
        within: Option<(usize, usize, Option<usize>, f64, f64)>,
        alone: bool,
        warm: bool,
        cpu_limit_seconds: Option<f64>,
        own_folder: Option<(PathBuf, Option<Vec<u8>>)>,
    ) -> PyResult<()> {
        let placements = placements.into_iter().map(Placement::try_from).collect::<PyResult<_>>()?;
        let outputs = outputs.into_iter().map(output).collect();
        let (timeout, cpu_limit) = (duration(timeout_seconds)?, duration(cpu_limit_seconds)?);
        let patches = patches.into_iter().map(|(stream, kind, side)| Patch { stream, kind, side }).collect();
        let within =
            within.map(|(subject, bits, evalue, lowest, highest)| Within { subject, bits, evalue, lowest, highest });
        let purpose = Purpose { head: head(first, last, fragment, attempt, &inputs), patches, within };
        let exe = exe.map(|exe| CString::new(exe.into_os_string().into_vec())).transpose()?;
        let own_folder = own_folder.map(own_folder_of).transpose()?;
        self.enqueue(
            Task { id, exe, argv, placements, outputs, substitutions, timeout, cpu_limit, alone, warm, own_folder },
            purpose,
            urgent,
        )
    }

    /// Waits for events, at most `timeout_seconds`; returns all that are there.
    fn events(&self, py: Python<'_>, timeout_seconds: f64) -> PyResult<Vec<PoolEvent>> {
        let pool = self.get()?;
        let timeout = Duration::try_from_secs_f64(timeout_seconds).unwrap_or(Duration::ZERO);
        let events = py.detach(|| pool.events(timeout));
        for event in &events {
            if let Event::Ended { id, .. } = event {
                self.sink.forget(*id);
            }
        }
        Ok(events.into_iter().map(|event| PoolEvent { event, journal: self.journal.clone() }).collect())
    }

    /// From now on, so many tasks are at work at once at most.
    fn allow(&self, tasks: usize) -> PyResult<()> {
        self.get()?.allow(tasks);
        Ok(())
    }

    /// Takes back the tasks that no slot has taken; returns their ids.
    fn withdraw(&self) -> PyResult<Vec<u64>> {
        Ok(self.get()?.withdraw())
    }

    /// Lets the programs that stay alive end, as all records are answered; what speaks against them, in words.
    fn part(&self, py: Python<'_>, patience_seconds: f64) -> PyResult<Vec<String>> {
        let pool = self.get()?;
        let patience = Duration::try_from_secs_f64(patience_seconds).unwrap_or(Duration::ZERO);
        py.detach(|| pool.part(patience)).map_err(io_error)
    }

    /// Kills the tools that run now.
    fn kill_all(&self) -> PyResult<()> {
        self.get()?.kill_all();
        Ok(())
    }

    /// Makes `events` return.
    fn wake(&self) -> PyResult<()> {
        self.get()?.wake();
        Ok(())
    }

    /// Kills what runs, waits for it, and frees the slots.
    fn close(&self, py: Python<'_>) {
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(pool));
    }
}

/// Overlays, mounts below them, folders in the slot and the user's, whether attributes are the user's, whether mounts have peers.
type ViewParts = (Vec<PathBuf>, Vec<PathBuf>, Vec<(PathBuf, PathBuf)>, bool, bool);

fn view_of((overlays, mounts, folders, user_attributes, has_peers): ViewParts) -> slot::View {
    slot::View { overlays, mounts, folders, user_attributes, has_peers }
}

fn own_folder_of((directory, pwd): (PathBuf, Option<Vec<u8>>)) -> PyResult<slot::OwnFolder> {
    let pwd = pwd.map(|pwd| CString::new([b"PWD=", pwd.as_slice()].concat())).transpose()?;
    Ok(slot::OwnFolder { directory: CString::new(directory.into_os_string().into_vec())?, pwd })
}

/// Starts a program with a view of the user's folders, as a pool would; `root` is the new folder of a slot.
#[pyfunction]
fn try_view(py: Python<'_>, view: ViewParts, root: PathBuf, namespaces: Vec<RawFd>) -> PyResult<()> {
    let namespaces = namespaces.into_iter().map(copied).collect::<io::Result<Vec<_>>>().map_err(io_error)?;
    py.detach(|| slot::try_view(&view_of(view), &root, &namespaces)).map_err(io_error)
}

/// A descriptor of a new user namespace, in which everybody is who they are.
#[pyfunction]
fn user_namespace(py: Python<'_>) -> PyResult<RawFd> {
    py.detach(slot::user_namespace).map(IntoRawFd::into_raw_fd).map_err(io_error)
}

/// How batches are compressed: as the reader of the input has seen it.
#[derive(Debug)]
struct AsTheInput(Packing);

impl Pack for AsTheInput {
    fn pack(&self, from: &mut dyn Read, size: u64, to: &mut dyn Write) -> io::Result<()> {
        self.0.pack(from, size, to)
    }
}

/// How the records of a program that stays alive are told apart: by the very cutter that made its batches.
#[derive(Debug)]
struct ByCutter(Cutter);

impl Lengths for ByCutter {
    fn of(&self, batch: &Path) -> io::Result<Vec<u64>> {
        lengths(batch, self.0.clone()).map_err(io::Error::other)
    }
}

fn lengths_of((format, start, end): (String, String, String)) -> PyResult<Arc<dyn Lengths>> {
    let given = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    let cutter = Format::parse(&format)
        .and_then(|format| Cutter::new(format, given(&start).as_deref(), given(&end).as_deref()))
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(Arc::new(ByCutter(cutter)))
}

fn duration(seconds: Option<f64>) -> PyResult<Option<Duration>> {
    let duration = seconds.map(Duration::try_from_secs_f64).transpose();
    duration.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn output((stream, place, name, optional): (u16, OutputPlace, Vec<u8>, bool)) -> Output {
    Output { stream, collect: place.into(), name, optional }
}

/// The process that cleans up after this one, whatever happens to it.
#[pyclass(frozen)]
struct Watchdog(Mutex<Option<slot::Watchdog>>);

#[pymethods]
impl Watchdog {
    /// Must be made before this process has a second thread.
    #[new]
    #[pyo3(signature = (root, token=None))]
    fn new(root: PathBuf, token: Option<&str>) -> PyResult<Self> {
        Ok(Self(Mutex::new(Some(slot::Watchdog::start(&root, token).map_err(io_error)?))))
    }

    /// Ends the run's tools and removes its work directory.
    fn close(&self, py: Python<'_>) {
        let watchdog = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        py.detach(|| drop(watchdog));
    }
}

/// Kills what carries `token` in its environment and removes `root`: for a run whose watchdog died too.
#[pyfunction]
fn sweep(py: Python<'_>, root: PathBuf, token: &str) {
    py.detach(|| slot::sweep(&root, token));
}

/// Whether the library that keeps a file open can be preloaded into a program.
#[pyfunction]
fn can_reread(exe: PathBuf) -> bool {
    slot::can_reread(&exe)
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Pool>()?;
    module.add_class::<PoolEvent>()?;
    module.add_class::<EventKind>()?;
    module.add_class::<PackedForm>()?;
    module.add_class::<SlotPlacement>()?;
    module.add_class::<OutputPlace>()?;
    module.add_class::<Watchdog>()?;
    module.add_function(wrap_pyfunction!(can_reread, module)?)?;
    module.add_function(wrap_pyfunction!(try_view, module)?)?;
    module.add_function(wrap_pyfunction!(user_namespace, module)?)?;
    module.add_function(wrap_pyfunction!(sweep, module)?)
}
