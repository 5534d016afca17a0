//! All slots of a node, fed from one queue so that the next task is ready when one ends.

use std::collections::{HashSet, VecDeque};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::area::Area;
use super::control::Control;
use super::descriptors;
use super::family::{self, Family};
use super::file_profile::{self, CallTable};
use super::lengths::Lengths;
use super::links::{Links, Watch};
use super::mark::Mark;
use super::memory::{Counter, Kills};
use super::outcome::{Outcome, Sink};
use super::place::Place;
use super::private::Private;
use super::reread;
use super::task::Task;
use super::text;
use super::view::{OldNamespaces, View};
use super::warm::Warmth;

/// What all slots have in common.
#[derive(Debug, Clone)]
pub struct Settings {
    /// One directory a slot, absolute, with its skeleton in place.
    pub roots: Vec<PathBuf>,
    /// The tool's working directory, absolute or relative to a slot's.
    pub directory: PathBuf,
    /// Paths relative to a slot's directory that stay there from task to task.
    pub skeleton: HashSet<PathBuf>,
    /// What of the user's the skeleton shows.
    pub links: Links,
    /// What tasks see of the user's folders where the skeleton does not show them.
    pub view: Option<View>,
    /// The program, absolute.
    pub exe: CString,
    /// Its environment, `NAME=value`; `slot_mark` in it stands for the slot's directory.
    pub environ: Vec<Vec<u8>>,
    /// Namespaces that it is started in, in the order in which they are entered; empty: those of this process.
    pub namespaces: Arc<Vec<OwnedFd>>,
    /// Priority, as for `nice`; 0 leaves it.
    pub nice: i32,
    /// Exit statuses besides 0 with which the program ends well.
    pub ok_statuses: Vec<i32>,
    /// Where the kernel counts what it kills for lack of memory, if anywhere.
    pub kills: Option<Counter>,
    /// Text in arguments and substitutions that stands for the slot's directory.
    pub slot_mark: Vec<u8>,
    /// Random text that is part of every slot's directory.
    pub secret: Vec<u8>,
    /// How long what a tool leaves running may do nothing before it is taken for stuck.
    pub patience: Duration,
    /// A tool that has used no CPU time and read or written nothing for so long is ended; None: it may.
    pub still_limit: Option<Duration>,
    /// (private text, the user's text): put back where the tool printed the former.
    pub substitutions: Vec<(Vec<u8>, Vec<u8>)>,
    /// What tools do with each file is counted, by a library that is preloaded into them.
    pub counts_calls: bool,
    /// Suffix of the file that the program opens and reads again for each record, which is kept open for it; empty: none.
    /// Not where calls are counted.
    pub reread_suffix: Vec<u8>,
    /// The program stays alive, and gets the records of its standard input one by one.
    pub records: Option<Arc<dyn Lengths>>,
}

/// What the pool reports.
#[derive(Debug)]
pub enum Event<R> {
    /// A slot took a task.
    Started {
        /// The task.
        id: u64,
        /// The slot.
        slot: usize,
        /// When.
        at: Instant,
    },
    /// A task came to its end.
    Ended {
        /// The task.
        id: u64,
        /// The slot.
        slot: usize,
        /// When.
        at: Instant,
        /// Tasks that were at work at once while it was, itself included, at most.
        side_by_side: usize,
        /// What came of it.
        outcome: Box<Outcome<R>>,
    },
    /// Somebody called [`Pool::wake`].
    Woken,
}

struct State<R> {
    /// Tasks that wait for a slot.
    tasks: VecDeque<Task>,
    /// What the caller has not taken yet.
    events: Vec<Event<R>>,
    /// One of these cannot wait until many have come together.
    pressing: bool,
    /// The caller is to be told of `events` when fewer tasks than this wait.
    low: usize,
    /// The caller waits in [`Pool::events`].
    awaited: bool,
    /// Slots without a task.
    idle: usize,
    /// Tasks that may be at work at once.
    allowed: usize,
    /// Tasks at work.
    busy: usize,
    /// One of them must have none beside it.
    alone: bool,
    /// For each slot with a task: how many were at work at once while that was, at most.
    side_by_side: Vec<usize>,
    closed: bool,
}

impl<R> State<R> {
    fn is_due(&self) -> bool {
        // Where not all slots may be used, whoever lends them waits to hear that one is free.
        let is_lent = self.allowed < self.side_by_side.len();
        self.pressing || (!self.events.is_empty() && (is_lent || self.tasks.len() < self.low))
    }

    /// The task that comes next, if it may begin now.
    fn take(&mut self, slot: usize) -> Option<Task> {
        let at_most = if self.tasks.front()?.alone { self.allowed.min(1) } else { self.allowed };
        if self.alone || self.busy >= at_most {
            return None;
        }
        let task = self.tasks.pop_front()?;
        self.busy += 1;
        self.alone = task.alone;
        self.side_by_side[slot] = 0;
        self.side_by_side.iter_mut().for_each(|most| *most = self.busy.max(*most));
        Some(task)
    }
}

struct Shared<R> {
    state: Mutex<State<R>>,
    /// There are tasks for idle slots, or the pool closes.
    filled: Condvar,
    /// There are events for the caller.
    due: Condvar,
    controls: Vec<Control>,
    area: Arc<Area>,
    watch: Arc<Watch>,
    warmth: Arc<Warmth>,
    old_namespaces: Arc<OldNamespaces>,
    /// Wakes the one who looks after running tools, when the pool closes.
    closing: Condvar,
}

impl<R> Shared<R> {
    fn lock(&self) -> MutexGuard<'_, State<R>> {
        // A thread that panicked while it held the lock left queues that are still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the caller, if it waits for what is there now.
    fn tell(&self, state: &State<R>) {
        if state.awaited && state.is_due() {
            self.due.notify_one();
        }
    }
}

/// The slots of a node. Dropping it kills what runs and waits for it.
pub struct Pool<R> {
    shared: Arc<Shared<R>>,
    places: Vec<Arc<Place>>,
    threads: Vec<JoinHandle<()>>,
}

impl<R: Send + 'static> Pool<R> {
    /// Starts one thread a slot; each waits for tasks.
    ///
    /// # Errors
    /// If a thread cannot be started or a path holds a NUL byte.
    pub fn new<S: Sink<Receipt = R> + 'static>(settings: &Settings, sink: Arc<S>) -> std::io::Result<Self> {
        let state = State {
            tasks: VecDeque::new(),
            events: vec![],
            pressing: false,
            low: 0,
            awaited: false,
            idle: 0,
            allowed: settings.roots.len(),
            busy: 0,
            alone: false,
            side_by_side: vec![0; settings.roots.len()],
            closed: false,
        };
        descriptors::raise();
        family::adopt()?;
        let controls = settings.roots.iter().map(|_| Control::default()).collect();
        let base = settings.roots.first().and_then(|root| root.parent()).unwrap_or(Path::new("/"));
        let mark = Mark::of_run(&settings.secret);
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            filled: Condvar::new(),
            due: Condvar::new(),
            controls,
            area: Arc::new(Area::of(base)?),
            watch: Arc::new(Watch::of(&settings.links, mark)),
            warmth: Arc::default(),
            old_namespaces: Arc::default(),
            closing: Condvar::new(),
        });
        let kills = Arc::new(Kills::new(settings.kills.as_ref()));
        let libraries = Libraries::place(settings, base)?;
        let mut pool = Self { shared, places: vec![], threads: vec![] };
        let (shared, family) = (pool.shared.clone(), Family::of(mark));
        pool.threads.push(std::thread::Builder::new().name("minder".into()).spawn(move || mind(&shared, &family))?);
        for slot in 0..settings.roots.len() {
            let (shared, sink) = (pool.shared.clone(), sink.clone());
            let place = Arc::new(place(settings, slot, &shared, kills.clone(), &libraries)?);
            pool.places.push(place.clone());
            let thread = std::thread::Builder::new()
                .name(format!("slot {slot}"))
                .spawn(move || work(slot, &place, &shared, &*sink))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a task; `first` puts it before those that wait.
    pub fn submit(&self, task: Task, first: bool) {
        let mut state = self.shared.lock();
        if first {
            state.tasks.push_front(task)
        } else {
            state.tasks.push_back(task)
        }
        if state.idle > 0 {
            self.shared.filled.notify_one();
        }
    }

    /// From now on, so many tasks are at work at once at most; those that are come to their end.
    pub fn allow(&self, tasks: usize) {
        self.shared.lock().allowed = tasks;
        self.shared.filled.notify_all();
    }

    /// Takes back all tasks that no slot has taken; returns their ids.
    pub fn withdraw(&self) -> Vec<u64> {
        self.shared.lock().tasks.drain(..).map(|task| task.id).collect()
    }

    /// All records are answered: lets the programs that stay alive end; what they did after that to make their answers
    /// doubtful, in words. Each has so long to end by itself, or until [`Pool::kill_all`].
    ///
    /// # Errors
    /// If that cannot be told.
    pub fn part(&self, patience: Duration) -> std::io::Result<Vec<String>> {
        std::thread::scope(|scope| {
            let parting: Vec<_> = self
                .places
                .iter()
                .zip(&self.shared.controls)
                .filter(|(place, _)| place.is_served())
                .map(|(place, control)| scope.spawn(move || place.part(control, patience)))
                .collect();
            let parted = parting
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|_| Err(std::io::Error::other("a look at a program panicked"))));
            parted.filter_map(Result::transpose).collect()
        })
    }

    /// Kills the tools that run now; each task ends with [`super::Failure::Killed`].
    pub fn kill_all(&self) {
        self.shared.controls.iter().for_each(Control::kill);
    }

    /// Makes [`Pool::events`] return; may be called from anywhere.
    pub fn wake(&self) {
        let mut state = self.shared.lock();
        state.events.push(Event::Woken);
        state.pressing = true;
        self.shared.tell(&state);
    }

    /// Waits for events, at most `timeout`, and returns all that are there.
    ///
    /// While many tasks wait for slots there is nothing to decide, so what happens is told in bunches: when half
    /// of those tasks are taken, or fewer are left than there are slots; a failure at once.
    pub fn events(&self, timeout: Duration) -> Vec<Event<R>> {
        let mut state = self.shared.lock();
        state.low = self.shared.controls.len().max(state.tasks.len() / 2);
        state.awaited = true;
        let waited = self.shared.due.wait_timeout_while(state, timeout, |state| !state.is_due());
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.awaited = false;
        state.pressing = false;
        std::mem::take(&mut state.events)
    }
}

impl<R> Drop for Pool<R> {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closed = true;
            state.tasks.clear();
        }
        self.shared.filled.notify_all();
        self.shared.closing.notify_all();
        self.shared.controls.iter().for_each(Control::kill);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Seconds between two looks at ended processes that nobody has waited for.
const REAP: Duration = Duration::from_secs(1);

/// Looks after what runs, until the pool closes: that there is room, that no tool fills it with words, and that what
/// ends is reaped.
fn mind<R>(shared: &Shared<R>, family: &Family) {
    let mut reaped_at = Instant::now();
    let mut state = shared.lock();
    while !state.closed {
        drop(state);
        // What cannot be seen now is looked at again; a task that ends looks for itself.
        let pause = shared.area.look().unwrap_or(REAP);
        shared.controls.iter().for_each(Control::cut_words);
        shared.watch.drain();
        shared.old_namespaces.release();
        if reaped_at.elapsed() >= REAP {
            reaped_at = Instant::now();
            let _ = family.reap_of_run();
        }
        state = shared.lock();
        if !state.closed {
            state = shared.closing.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn work<S: Sink>(slot: usize, place: &Place, shared: &Shared<S::Receipt>, sink: &S) {
    let mut ended = None;
    while let Some(task) = next(slot, ended.take(), shared) {
        let outcome = place.run(&task, &shared.controls[slot], sink);
        ended = Some((task.id, Instant::now(), outcome));
    }
    place.dismiss();
    place.cool_down();
}

/// Reports what `ended` and takes the next task, when there is one; None when the pool closes.
fn next<R>(slot: usize, ended: Option<(u64, Instant, Outcome<R>)>, shared: &Shared<R>) -> Option<Task> {
    let mut state = shared.lock();
    if let Some((id, at, outcome)) = ended {
        state.pressing |= outcome.result.is_err();
        let side_by_side = state.side_by_side[slot];
        state.events.push(Event::Ended { id, slot, at, side_by_side, outcome: Box::new(outcome) });
        state.busy -= 1;
        if std::mem::take(&mut state.alone) {
            shared.filled.notify_all(); // others waited for its end
        }
    }
    loop {
        let task = if state.closed { None } else { state.take(slot) };
        if let Some(task) = &task {
            state.events.push(Event::Started { id: task.id, slot, at: Instant::now() });
        }
        shared.tell(&state);
        if task.is_some() || state.closed {
            return task;
        }
        state.idle += 1;
        state = shared.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
    }
}

/// Libraries that are preloaded into the tools of all slots; at most one of them is there.
#[derive(Default)]
struct Libraries {
    calls: Option<Arc<PathBuf>>,
    reread: Option<PathBuf>,
}

impl Libraries {
    fn place(settings: &Settings, folder: &Path) -> std::io::Result<Self> {
        if settings.counts_calls {
            return Ok(Self { calls: Some(Arc::new(file_profile::place_library(folder)?)), reread: None });
        }
        let is_wanted = !settings.reread_suffix.is_empty();
        Ok(Self { calls: None, reread: is_wanted.then(|| reread::place_library(folder, &settings.exe)).flatten() })
    }
}

fn place<R>(
    settings: &Settings,
    slot: usize,
    shared: &Shared<R>,
    kills: Arc<Kills>,
    libraries: &Libraries,
) -> std::io::Result<Place> {
    use std::os::unix::ffi::OsStrExt;
    let root = &settings.roots[slot];
    let in_slot = |text: &[u8]| text::in_slot(text, &settings.slot_mark, root);
    let substitutions = settings.substitutions.iter().map(|(private, user)| (in_slot(private), user.clone())).collect();
    let mark = Mark::of_run(&settings.secret).of_slot(slot);
    let private = Private::of(root, &settings.links.links)?;
    let view = settings.view.clone().map(Arc::new);
    if let Some(view) = &view {
        view.refresh(root)?;
    }
    let mut environ =
        settings.environ.iter().map(|entry| in_slot(entry)).map(CString::new).collect::<Result<Vec<_>, _>>()?;
    let table = libraries.calls.clone().map(|library| CallTable::create(root, library)).transpose()?;
    if let Some(table) = &table {
        environ = table.add_to(&environ)?;
    }
    if let Some(library) = &libraries.reread {
        environ = reread::environ(&environ, library, &settings.reread_suffix)?;
    }
    Ok(Place {
        directory: CString::new(root.join(&settings.directory).as_os_str().as_bytes())?,
        root: root.clone(),
        skeleton: settings.skeleton.clone(),
        exe: settings.exe.clone(),
        environ,
        table,
        namespaces: settings.namespaces.clone(),
        nice: settings.nice,
        ok_statuses: settings.ok_statuses.clone(),
        kills,
        null: fs_err::File::open("/dev/null")?.into_file(),
        slot_mark: settings.slot_mark.clone(),
        secret: settings.secret.clone(),
        mark,
        family: Family::of(mark),
        area: shared.area.clone(),
        watch: shared.watch.clone(),
        private: Mutex::new(private),
        calls: view.as_ref().map(|view| view.calls(root)).transpose()?,
        view,
        namespace: Mutex::default(),
        old_namespaces: shared.old_namespaces.clone(),
        patience: settings.patience,
        still_limit: settings.still_limit,
        substitutions,
        records: settings.records.clone(),
        live: Mutex::default(),
        number: slot,
        warmth: shared.warmth.clone(),
        server: Mutex::default(),
    })
}
