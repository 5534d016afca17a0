//! Whether the kernel killed a process of a task because memory ran out.
//!
//! The kernel counts such kills, by control group or for the whole machine, and does not say whom. So each kill that
//! was counted while a task ran is set against the tasks that ended badly meanwhile; what is left over was a child of
//! a tool that hides it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::spawn::Ending;

/// Where the kernel counts its kills: a file with a line `oom_kill N`.
#[derive(Debug, Clone)]
pub struct Counter {
    /// `memory.events`, `memory.oom_control` or `/proc/vmstat`.
    pub path: PathBuf,
    /// It counts the processes of our own control group, and no others.
    pub own: bool,
}

/// A process that was chosen takes a moment to end; so long a task that ended well waits for another to account for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How old the count of the whole machine may be.
const FRESH: Duration = Duration::from_millis(20);

/// What a shell makes of a child that was killed: 128 and the signal.
const KILLED_BELOW: i32 = 128 + libc::SIGKILL;

/// The counter, and what is known of its kills.
#[derive(Debug, Default)]
pub(super) struct Kills {
    file: Option<File>,
    own: bool,
    /// Kills that a task has accounted for.
    explained: AtomicU64,
    /// Tasks at work.
    running: AtomicUsize,
    /// The count when it was last read before a task.
    last: Mutex<Option<(Instant, u64)>>,
}

/// One task at work.
pub(super) struct Watch<'a> {
    kills: &'a Kills,
    counted: u64,
    explained: u64,
}

impl Kills {
    /// Where nothing is counted, no kill is ever seen.
    pub(super) fn new(counter: Option<&Counter>) -> Self {
        Self {
            file: counter.and_then(|counter| File::open(&counter.path).ok()),
            own: counter.is_some_and(|counter| counter.own),
            ..Self::default()
        }
    }

    /// To be called before a task begins, and kept until it has ended.
    pub(super) fn watch(&self) -> Watch<'_> {
        self.running.fetch_add(1, Ordering::SeqCst);
        Watch { kills: self, counted: self.counted_before(), explained: self.explained.load(Ordering::SeqCst) }
    }

    /// The count before a task: that of the whole machine costs as much as a very short task, so it may be a little older.
    fn counted_before(&self) -> u64 {
        if self.own {
            return self.counted();
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((at, counted)) if at.elapsed() < FRESH => counted,
            _ => last.insert((Instant::now(), self.counted())).1,
        }
    }

    fn counted(&self) -> u64 {
        let mut text = [0; 16 << 10];
        let Some(file) = &self.file else { return 0 };
        file.read_at(&mut text, 0).map_or(0, |length| parse(&text[..length]))
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.kills.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Watch<'_> {
    /// Whether memory ran out for the task that ended so: a process of it was killed for that, as far as one can tell.
    pub(super) fn is_hit(&self, ending: Ending) -> bool {
        let hit = match ending {
            Ending::Signalled(libc::SIGKILL) | Ending::Exited(KILLED_BELOW) => self.grown() > 0,
            // Others share that count: without a sign of a kill it says nothing of this task.
            _ if !self.kills.own => false,
            Ending::Exited(0) => return self.is_left_over(),
            _ => self.is_unexplained(),
        };
        if hit {
            self.explain();
        }
        hit
    }

    fn explain(&self) {
        self.kills.explained.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether no other task accounts for a kill, once those that are about to end have done so.
    fn is_left_over(&self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while self.is_unexplained() {
            if self.kills.running.load(Ordering::SeqCst) <= 1 {
                self.explain();
                return true;
            }
            if Instant::now() > deadline {
                return true; // the kill may be that of a task which has not ended yet: it stays to be accounted for
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    fn is_unexplained(&self) -> bool {
        self.grown() > self.kills.explained.load(Ordering::SeqCst) - self.explained
    }

    fn grown(&self) -> u64 {
        self.kills.counted().saturating_sub(self.counted)
    }
}

/// The number in the line `oom_kill N`; 0 if there is none.
fn parse(text: &[u8]) -> u64 {
    let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"oom_kill "));
    line.and_then(|number| std::str::from_utf8(number).ok()?.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_count_is_read_from_files_of_both_kinds_of_groups_and_of_the_machine() {
        assert_eq!(parse(b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 7\n"), 2);
        assert_eq!(parse(b"oom_kill_disable 0\nunder_oom 0\noom_kill 41\n"), 41);
        assert_eq!(parse(b"nr_free_pages 1\noom_kill 5\n"), 5);
        assert_eq!(parse(b"oom_kill_disable 0\nunder_oom 0\n"), 0);
    }

    struct Scene {
        folder: tempfile::TempDir,
        kills: Kills,
    }

    impl Scene {
        fn new(own: bool) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("events");
            fs::write(&path, "oom_kill 7\n").unwrap();
            let kills = Kills::new(Some(&Counter { path, own }));
            Self { folder, kills }
        }

        fn count(&self, n: u64) {
            fs::write(self.folder.path().join("events"), format!("oom_kill {n}\n")).unwrap();
        }
    }

    #[test]
    fn a_kill_is_told_from_one_that_nobody_counted() {
        let scene = Scene::new(true);
        let task = scene.kills.watch();
        assert!(!task.is_hit(Ending::Signalled(libc::SIGKILL)));
        let task = scene.kills.watch();
        scene.count(8);
        assert!(task.is_hit(Ending::Signalled(libc::SIGKILL)));
        let later = scene.kills.watch();
        assert!(!later.is_hit(Ending::Signalled(libc::SIGKILL)));
    }

    #[test]
    fn one_kill_is_one_tasks_and_a_hidden_one_is_not_taken_for_a_result() {
        let scene = Scene::new(true);
        let (first, second) = (scene.kills.watch(), scene.kills.watch());
        scene.count(8);
        assert!(first.is_hit(Ending::Signalled(libc::SIGKILL)));
        assert!(!second.is_hit(Ending::Exited(0)));
        drop((first, second));
        let hidden = scene.kills.watch();
        scene.count(9);
        assert!(hidden.is_hit(Ending::Exited(0)));
        drop(hidden);
        let (first, second) = (scene.kills.watch(), scene.kills.watch());
        scene.count(10);
        assert!(first.is_hit(Ending::Exited(1)));
        assert!(!second.is_hit(Ending::Exited(1)));
    }

    #[test]
    fn a_kill_that_nobody_accounts_for_in_time_leaves_no_task_beside_it_unsuspected() {
        let scene = Scene::new(true);
        let (first, second) = (scene.kills.watch(), scene.kills.watch());
        scene.count(8);
        assert!(first.is_hit(Ending::Exited(0)));
        drop(first);
        assert!(second.is_hit(Ending::Exited(0)));
    }

    #[test]
    fn a_count_that_others_share_is_believed_only_of_what_was_killed() {
        for (ending, hit) in [
            (Ending::Exited(0), false),
            (Ending::Exited(1), false),
            (Ending::Exited(137), true),
            (Ending::Signalled(libc::SIGKILL), true),
        ] {
            let scene = Scene::new(false);
            let task = scene.kills.watch();
            scene.count(8);
            assert_eq!(task.is_hit(ending), hit, "{ending:?}");
        }
    }
}
