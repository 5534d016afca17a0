//! The watchdog: a small process that outlives us for a moment, and cleans up whatever happened to us.
//!
//! The kernel kills a tool when we die; its children and the files in memory are not its business.
//! The watchdog holds one end of a pipe. When the other end closes, by our exit or our death, it kills every
//! process that carries the run's token in its environment, or the run's mark, and removes the work directory. Every run is
//! cleaned up in this way, so it is exercised by every run; if somebody has killed the watchdog, the run does so itself.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::descriptors;
use super::mark::Mark;
use super::rights;

/// The running watchdog. Dropping it ends the run: tools are killed, the work directory is removed.
#[derive(Debug)]
pub struct Watchdog {
    pipe: Option<OwnedFd>,
    pid: libc::pid_t,
    root: PathBuf,
    token: Option<String>,
}

impl Watchdog {
    /// Forks the watchdog for the work directory `root`; `token` is the `NAME=value` that all tools carry. Without it,
    /// no process is killed.
    ///
    /// To be called before the process has threads: the child of a threaded process may not even allocate.
    ///
    /// It returns once the watchdog can be told by its name: whoever ends a job spares it, and kills the rest. What
    /// the caller makes from then on is removed.
    ///
    /// # Errors
    /// If the pipes or the process cannot be made, or the process was killed at once.
    pub fn start(root: &Path, token: Option<&str>) -> io::Result<Self> {
        let (reading, writing) = pipe()?;
        let (ready, tell) = pipe()?;
        // SAFETY: single-threaded by contract, so the child may do as it likes.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                watch(reading.as_raw_fd(), tell.as_raw_fd(), root, token);
                // SAFETY: ends the child without running the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
            pid => {
                drop((reading, tell));
                let dog = Self { pipe: Some(writing), pid, root: root.to_owned(), token: token.map(str::to_owned) };
                let told = File::from(ready).read_exact(&mut [0]);
                told.map_err(|_| io::Error::other("the watchdog of this run was killed as it started"))?;
                Ok(dog)
            }
        }
    }
}

/// The reading and the writing end.
fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors, which are nobody else's.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        let mut status = 0;
        // SAFETY: our own child, reaped once. Waiting means that nothing is left when we return.
        let reaped = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        if reaped != self.pid || libc::WIFSIGNALED(status) {
            sweep_for(&self.root, self.token.as_deref()); // somebody killed it
        }
    }
}

fn watch(pipe: i32, tell: i32, root: &Path, token: Option<&str>) {
    // SAFETY: system calls of a process of its own; the range call keeps only the pipe.
    unsafe {
        libc::setsid();
        for signal in
            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGXCPU, libc::SIGPIPE]
        {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"millrace-watch".as_ptr());
        libc::write(tell, c"!".as_ptr().cast(), 1);
        libc::dup2(pipe, 0);
        descriptors::close_from(1);
        libc::chdir(c"/".as_ptr());
        let mut byte = 0_u8;
        // Nobody ever writes; the read returns when the other end is closed.
        while libc::read(0, (&raw mut byte).cast(), 1) != 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break;
            }
        }
    }
    sweep_for(root, token);
}

/// A process that is still there when pauses have grown so long (about 25 s in all) hangs in the kernel, on a
/// dead network disk perhaps: it ends when the kernel lets it, and there is nothing more to do.
const MOST_PAUSE: std::time::Duration = std::time::Duration::from_secs(5);

/// Kills every process of this user that carries `token`, a whole `NAME=value`, in its environment, or its mark, then
/// removes `root`.
///
/// A `root` that is not this user's folder is left alone.
pub fn sweep(root: &Path, token: &str) {
    sweep_for(root, Some(token));
}

fn sweep_for(root: &Path, token: Option<&str>) {
    // A process may fork while we look: look again until nobody is found.
    let mut pause = std::time::Duration::from_millis(1);
    while token.is_some_and(kill_marked) && pause < MOST_PAUSE {
        std::thread::sleep(pause);
        pause = pause * 5 / 4;
    }
    // A killed process may still be writing its last file when its directory goes; and a file that is not found may be
    // one that another sweeper has removed just now, which says nothing of the rest.
    for _ in 0..100 {
        if remove(root).is_ok() || fs::symlink_metadata(root).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Removes a folder of this user. Its entries go by way of the opened folder: whatever its name comes to mean
/// meanwhile, where others may rename it, what is removed is what was looked at.
fn remove(root: &Path) -> io::Result<()> {
    let folder = fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW).open(root)?;
    if folder.metadata()?.uid() != user() {
        return Ok(());
    }
    for entry in fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))? {
        let entry = entry?;
        let path = entry.path();
        // None of them follows a link.
        if entry.file_type()?.is_dir() {
            rights::removing(&path, || fs::remove_dir_all(&path))?;
        } else {
            fs::remove_file(&path)?;
        }
    }
    fs::remove_dir(root)
}

fn user() -> libc::uid_t {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

fn kill_marked(token: &str) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    let mut found = false;
    for entry in processes.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<libc::pid_t>().ok()) else { continue };
        if u32::try_from(pid) != Ok(std::process::id()) && is_marked(pid, token) {
            // The number may be another's by now: only the process that is held, and is still the one, is killed.
            let held = descriptors::open_process(pid);
            found |= is_marked(pid, token) && kill(pid, held.as_ref());
        }
    }
    found
}

/// Whether process `pid` lives, is this user's, and has `token` as an entry of its environment, or its mark.
fn is_marked(pid: libc::pid_t, token: &str) -> bool {
    let place = Path::new("/proc").join(pid.to_string());
    let has_token = || {
        // What is others' is not even read, which root could.
        fs::metadata(&place).is_ok_and(|about| about.uid() == user())
            && fs::read(place.join("environ"))
                .is_ok_and(|all| all.split(|byte| *byte == 0).any(|entry| entry == token.as_bytes()))
    };
    (Mark::of_token(token).of_process(pid).is_some() || has_token())
        && fs::read(place.join("status")).is_ok_and(|status| is_own_and_alive(&status))
}

/// Whether the `status` of a process is that of one which this user started, and which is no zombie.
fn is_own_and_alive(status: &[u8]) -> bool {
    let word = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())
    };
    // SAFETY: no arguments.
    let real = unsafe { libc::getuid() };
    word(b"Uid:") == Some(real.to_string().as_bytes()) && word(b"State:") != Some(b"Z")
}

/// Kills the process; whether it was there to be killed.
fn kill(pid: libc::pid_t, held: Option<&OwnedFd>) -> bool {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    if let Some(held) = held {
        // SAFETY: a descriptor of ours, and no further information.
        if unsafe { libc::syscall(libc::SYS_pidfd_send_signal, held.as_raw_fd(), libc::SIGKILL, nothing, 0) == 0 } {
            return true;
        }
        if io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
            return false;
        }
    }
    // Where the kernel, or a container's profile, does not know descriptors of processes: it was the one a moment ago.
    // SAFETY: no memory involved.
    unsafe { libc::kill(pid, libc::SIGKILL) == 0 }
}
