//! All slots of a node, fed from one queue so that the next task is ready when one ends.

use std::collections::{HashSet, VecDeque};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::task::{Control, Outcome, Place, Sink, Task};
use super::text;

/// What all slots have in common.
#[derive(Debug, Clone)]
pub struct Settings {
    /// One directory a slot, absolute, with its skeleton in place.
    pub roots: Vec<PathBuf>,
    /// The tool's working directory, relative to a slot's.
    pub directory: PathBuf,
    /// Paths relative to a slot's directory that stay there from task to task.
    pub skeleton: HashSet<PathBuf>,
    /// The program, absolute.
    pub exe: CString,
    /// Its environment, `NAME=value`.
    pub environ: Vec<CString>,
    /// Priority, as for `nice`; 0 leaves it.
    pub nice: i32,
    /// Text in arguments and substitutions that stands for the slot's directory.
    pub slot_mark: Vec<u8>,
    /// Random text that is part of every slot's directory.
    pub secret: Vec<u8>,
    /// (private text, the user's text): put back where the tool printed the former.
    pub substitutions: Vec<(Vec<u8>, Vec<u8>)>,
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
    },
    /// A task came to its end.
    Ended {
        /// The task.
        id: u64,
        /// The slot.
        slot: usize,
        /// What came of it.
        outcome: Outcome<R>,
    },
    /// Somebody called [`Pool::wake`].
    Woken,
}

#[derive(Debug, Default)]
struct Queue {
    tasks: VecDeque<Task>,
    closed: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    filled: Condvar,
    controls: Vec<Control>,
}

/// The slots of a node. Dropping it kills what runs and waits for it.
pub struct Pool<R> {
    shared: Arc<Shared>,
    events: Mutex<Receiver<Event<R>>>,
    sender: Sender<Event<R>>,
    threads: Vec<JoinHandle<()>>,
}

impl<R: Send + 'static> Pool<R> {
    /// Starts one thread a slot; each waits for tasks.
    ///
    /// # Errors
    /// If a thread cannot be started or a path holds a NUL byte.
    pub fn new<S: Sink<Receipt = R> + 'static>(settings: &Settings, sink: Arc<S>) -> std::io::Result<Self> {
        let (sender, events) = channel();
        let controls = settings.roots.iter().map(|_| Control::default()).collect();
        let shared = Arc::new(Shared { queue: Mutex::default(), filled: Condvar::new(), controls });
        let mut pool = Self { shared, events: Mutex::new(events), sender, threads: vec![] };
        for slot in 0..settings.roots.len() {
            let place = place(settings, slot)?;
            let (shared, sender, sink) = (pool.shared.clone(), pool.sender.clone(), sink.clone());
            let thread = std::thread::Builder::new()
                .name(format!("slot {slot}"))
                .spawn(move || work(slot, &place, &shared, &sender, &*sink))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// Queues a task; `first` puts it before those that wait.
    pub fn submit(&self, task: Task, first: bool) {
        let mut queue = lock(&self.shared.queue);
        if first {
            queue.tasks.push_front(task)
        } else {
            queue.tasks.push_back(task)
        }
        self.shared.filled.notify_one();
    }

    /// Takes back all tasks that no slot has taken; returns their ids.
    pub fn withdraw(&self) -> Vec<u64> {
        lock(&self.shared.queue).tasks.drain(..).map(|task| task.id).collect()
    }

    /// Kills the tools that run now; each ends with [`super::Failure::Killed`].
    pub fn kill_all(&self) {
        self.shared.controls.iter().for_each(Control::kill);
    }

    /// Makes [`Pool::events`] return; may be called from anywhere.
    pub fn wake(&self) {
        // The receiver lives as long as the pool.
        let _ = self.sender.send(Event::Woken);
    }

    /// Waits for an event, at most `timeout`, and returns all that are there.
    pub fn events(&self, timeout: Duration) -> Vec<Event<R>> {
        let events = lock(&self.events);
        let mut found = match events.recv_timeout(timeout) {
            Ok(event) => vec![event],
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return vec![],
        };
        found.extend(events.try_iter());
        found
    }
}

impl<R> Drop for Pool<R> {
    fn drop(&mut self) {
        {
            let mut queue = lock(&self.shared.queue);
            queue.closed = true;
            queue.tasks.clear();
        }
        self.shared.filled.notify_all();
        self.shared.controls.iter().for_each(Control::kill);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn work<S: Sink>(slot: usize, place: &Place, shared: &Shared, events: &Sender<Event<S::Receipt>>, sink: &S) {
    let control = &shared.controls[slot];
    loop {
        let task = {
            let mut queue = lock(&shared.queue);
            loop {
                if let Some(task) = queue.tasks.pop_front() {
                    break task;
                }
                if queue.closed {
                    return;
                }
                queue = shared.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let _ = events.send(Event::Started { id: task.id, slot });
        let outcome = place.run(&task, control, sink);
        let _ = events.send(Event::Ended { id: task.id, slot, outcome });
    }
}

fn place(settings: &Settings, slot: usize) -> std::io::Result<Place> {
    use std::os::unix::ffi::OsStrExt;
    let root = settings.roots[slot].clone();
    let substitutions = settings
        .substitutions
        .iter()
        .map(|(private, user)| (text::in_slot(private, &settings.slot_mark, &root), user.clone()))
        .collect();
    Ok(Place {
        directory: CString::new(root.join(&settings.directory).as_os_str().as_bytes())?,
        root,
        skeleton: settings.skeleton.clone(),
        exe: settings.exe.clone(),
        environ: settings.environ.clone(),
        nice: settings.nice,
        slot_mark: settings.slot_mark.clone(),
        secret: settings.secret.clone(),
        substitutions,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A thread that panicked while it held the lock left a queue or receiver that is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
