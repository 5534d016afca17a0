//! Starting one process, and waiting for it.
//!
//! `clone(CLONE_VM | CLONE_VFORK)` with a stack of its own is what `posix_spawn` does inside, so the cost
//! does not grow with our memory as a `fork` would (40 ms at 2 GB); doing it here lets the child ask for
//! `PR_SET_PDEATHSIG`, so that a tool never outlives us, which `posix_spawn` cannot.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use super::descriptors;
use super::io_counts::IoCounts;
use super::mark::Mark;
use super::view::ViewCalls;

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
}

impl Ending {
    /// What `wait` tells.
    fn of(status: libc::c_int) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signalled(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }

    /// Whether it did its work: status 0, or one of `statuses`.
    pub(super) fn is_good(self, statuses: &[i32]) -> bool {
        matches!(self, Self::Exited(status) if status == 0 || statuses.contains(&status))
    }
}

/// What a process and its waited-for children used.
#[derive(Debug, Clone, Copy, Default)]
pub struct Usage {
    /// User and system CPU, in seconds.
    pub cpu_seconds: f64,
    /// Peak resident memory, in bytes.
    pub peak_rss_bytes: u64,
    /// What it read and wrote.
    pub io: IoCounts,
}

/// A program ready to start any number of times.
pub(super) struct Start<'a> {
    pub(super) exe: &'a CStr,
    pub(super) argv: &'a [CString],
    pub(super) environ: &'a [CString],
    /// What the process does in place of the program.
    pub(super) trial: Option<&'a FolderTrial>,
    pub(super) directory: &'a CStr,
    /// Entered in this order.
    pub(super) namespaces: &'a [OwnedFd],
    /// Entered after them.
    pub(super) view: Option<&'a ViewCalls>,
    pub(super) stdin: &'a File,
    pub(super) stdout: &'a File,
    pub(super) stderr: &'a File,
    pub(super) nice: i32,
    pub(super) mark: Mark,
}

/// Steps in a folder that show whether it is one: an empty folder is removed and made anew, which takes attributes, and a file
/// in it renamed. A process costs a start of Millrace a millisecond, so these are calls, and no programs.
pub(super) struct FolderTrial {
    folder: CString,
    file: CString,
    renamed: CString,
}

impl FolderTrial {
    /// For the empty folder `name` in the working directory.
    pub(super) fn new(name: &str) -> io::Result<Self> {
        let path = |file: &str| CString::new(format!("{name}{file}"));
        Ok(Self { folder: path("")?, file: path("/a")?, renamed: path("/b")? })
    }

    /// Does the steps; leaves nothing if all went well. Async-signal-safe.
    ///
    /// # Errors
    /// What could not be done, and the error number.
    unsafe fn run(&self) -> Result<(), (&'static str, c_int)> {
        let (folder, file, renamed) = (self.folder.as_ptr(), self.file.as_ptr(), self.renamed.as_ptr());
        let check = |step, result| match result {
            0.. => Ok(()),
            _ => Err((step, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))),
        };
        // SAFETY: system calls on strings that live as long as `self`.
        unsafe {
            check("a folder cannot be removed", libc::rmdir(folder))?;
            check("a folder cannot be made", libc::mkdir(folder, 0o700))?;
            let made = libc::open(file, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC, 0o600);
            check("a file cannot be made", made)?;
            check("a file cannot be closed", libc::close(made))?;
            check("a file cannot be renamed", libc::rename(file, renamed))?;
            check("a file cannot be removed", libc::unlink(renamed))?;
            check("a folder cannot be removed", libc::rmdir(folder))
        }
    }
}

const STACK: usize = 128 << 10;

/// Everything the child needs, prepared beforehand: it may not allocate.
struct Child {
    exe: *const c_char,
    argv: *const *const c_char,
    shell_argv: *const *const c_char,
    environ: *const *const c_char,
    trial: Option<*const FolderTrial>,
    directory: *const c_char,
    namespaces: *const [RawFd],
    view: Option<*const ViewCalls>,
    /// Whether the memory of this process, which the child shares, may be looked at.
    dumpable: c_int,
    fds: [RawFd; 3],
    nice: c_int,
    mark: Mark,
    parent: libc::pid_t,
    error: c_int,
    /// What could not be done; empty: the program cannot be executed.
    step: &'static str,
}

/// A running process, leader of its own process group.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: libc::pid_t,
}

/// Starts `start`.
///
/// The calling thread must outlive the process: the kernel sends the death signal when it ends.
pub(super) fn spawn(start: &Start<'_>) -> io::Result<Process> {
    let pointers = |strings: &[CString]| -> Vec<*const c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let argv = pointers(start.argv);
    // A script without a `#!` line is run by the shell, as execvp does.
    let mut shell_argv = vec![c"/bin/sh".as_ptr(), start.exe.as_ptr()];
    shell_argv.extend(argv.iter().skip(1));
    let environ = pointers(start.environ);
    let namespaces: Vec<RawFd> = start.namespaces.iter().map(AsRawFd::as_raw_fd).collect();
    let files = [start.stdin, start.stdout, start.stderr];
    let copies = [above_stdio(start.stdin)?, above_stdio(start.stdout)?, above_stdio(start.stderr)?];
    let fd = |k: usize| copies[k].as_ref().map_or(files[k].as_raw_fd(), AsRawFd::as_raw_fd);
    // Not cleared: that would cost more than the call.
    let mut stack = Vec::<u128>::with_capacity(STACK / 16);
    let mut child = Child {
        exe: start.exe.as_ptr(),
        argv: argv.as_ptr(),
        shell_argv: shell_argv.as_ptr(),
        environ: environ.as_ptr(),
        trial: start.trial.map(ptr::from_ref),
        directory: start.directory.as_ptr(),
        namespaces: namespaces.as_slice(),
        view: start.view.map(ptr::from_ref),
        // SAFETY: a number is asked for.
        dumpable: unsafe { libc::prctl(libc::PR_GET_DUMPABLE) },
        fds: [fd(0), fd(1), fd(2)],
        nice: start.nice,
        mark: start.mark,
        // SAFETY: no arguments, cannot fail.
        parent: unsafe { libc::getpid() },
        error: 0,
        step: "",
    };
    // SAFETY: the stack and `child` live until clone returns, which by CLONE_VFORK is after the child has
    // executed or ended; the child calls only async-signal-safe functions. Signals are blocked meanwhile, so
    // that no handler of ours runs in the child on our memory.
    let pid = unsafe {
        let (mut all, mut old) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut old);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let pid = libc::clone(run_child, stack.as_mut_ptr().add(STACK / 16).cast(), flags, (&raw mut child).cast());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &old, ptr::null_mut());
        if pid < 0 {
            return Err(error);
        }
        pid
    };
    // SAFETY: `child` was written by the child before clone returned.
    let (error, step) =
        unsafe { (ptr::read_volatile(&raw const child.error), ptr::read_volatile(&raw const child.step)) };
    if error != 0 {
        // SAFETY: reaps the child that could not execute.
        unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        let error = io::Error::from_raw_os_error(error);
        return Err(if step.is_empty() { error } else { io::Error::new(error.kind(), format!("{step}: {error}")) });
    }
    Ok(Process { pid })
}

/// A copy of a descriptor that is not above 2, so that `dup2` in the child never steps on one still to be used.
fn above_stdio(file: &File) -> io::Result<Option<OwnedFd>> {
    if file.as_raw_fd() > 2 {
        return Ok(None);
    }
    // SAFETY: plain system call on a live descriptor.
    let fd = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh descriptor.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}

extern "C" fn run_child(argument: *mut c_void) -> c_int {
    // SAFETY: `argument` is the `Child` of `spawn`, alive while we run; only async-signal-safe calls follow.
    unsafe {
        let child = argument.cast::<Child>();
        match become_tool(&mut *child) {
            Ok(()) => libc::_exit(0),
            Err(error) => (*child).error = error,
        }
        libc::_exit(127)
    }
}

/// Returns on failure, with the error number; and after a trial.
unsafe fn become_tool(child: &mut Child) -> Result<(), c_int> {
    let check = |result: c_int| {
        if result < 0 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)) } else { Ok(()) }
    };
    // SAFETY: async-signal-safe system calls on values prepared by the parent.
    unsafe {
        check(libc::setpgid(0, 0))?;
        leave_terminal();
        child.mark.put_on_self();
        // First, as it may undo the death signal, and leaves the child at the root.
        for namespace in &*child.namespaces {
            check(libc::setns(*namespace, 0))?;
        }
        if let Some(view) = child.view {
            child.step = "a view of the working directory cannot be mounted";
            (*view).enter()?;
            child.step = "";
        }
        // Another user namespace closes it, for our process too.
        libc::prctl(libc::PR_SET_DUMPABLE, child.dumpable);
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0))?;
        if libc::getppid() != child.parent {
            return Err(libc::ESRCH);
        }
        for (target, fd) in child.fds.iter().enumerate() {
            check(libc::dup2(*fd, target as c_int))?;
        }
        // Not before: the view needs descriptors beyond those of this process.
        descriptors::give_back();
        check(libc::chdir(child.directory))?;
        if let Some(trial) = child.trial {
            return (*trial).run().map_err(|(step, error)| {
                child.step = step;
                error
            });
        }
        if child.nice != 0 {
            // Lower than ours, as nice(1) does it: never above what whoever started us gave us. At 19 the kernel stops. Not
            // being allowed to change priority is no reason not to run.
            libc::setpriority(libc::PRIO_PROCESS, 0, libc::getpriority(libc::PRIO_PROCESS, 0) + child.nice);
        }
        // Python ignores these two; a tool expects the default. No handler of ours may run on our memory.
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        for signal in 1..32 {
            let mut old: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(signal, ptr::null(), &mut old) == 0
                && (old.sa_sigaction != libc::SIG_IGN || matches!(signal, libc::SIGPIPE | libc::SIGXFSZ))
            {
                libc::sigaction(signal, &action, ptr::null_mut());
            }
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
        libc::execve(child.exe, child.argv, child.environ);
        let error = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        if error == libc::ENOEXEC {
            libc::execve(c"/bin/sh".as_ptr(), child.shell_argv, child.environ);
        }
        Err(error)
    }
}

/// Gives up the terminal: a tool that wants to ask there is told that there is none, instead of being stopped without a
/// word as one that reads in the background. A session of its own would do it, too, but on many desktops each session has
/// an equal share of the machine, whatever its priority. Async-signal-safe.
unsafe fn leave_terminal() {
    // SAFETY: system calls on a descriptor of our own.
    unsafe {
        let terminal = libc::open(c"/dev/tty".as_ptr(), libc::O_RDONLY | libc::O_NOCTTY | libc::O_CLOEXEC);
        if terminal >= 0 {
            libc::ioctl(terminal, libc::TIOCNOTTY);
            libc::close(terminal);
        }
    }
}

/// What became of a process.
pub(super) enum Reaped {
    /// It has not ended.
    Lives,
    /// It ended so, and is reaped now.
    Ended(Ending),
    /// It is no child of ours, or not any more.
    Gone,
}

/// Whether a child of ours, which stays unreaped, has ended.
fn look_for_end(pid: libc::pid_t) -> io::Result<bool> {
    // SAFETY: plain data, filled by waitid.
    let (result, ended) = unsafe {
        let mut about: libc::siginfo_t = std::mem::zeroed();
        let options = libc::WEXITED | libc::WNOWAIT | libc::WNOHANG;
        let result = libc::waitid(libc::P_PID, pid as libc::id_t, &mut about, options);
        (result, about.si_pid() == pid)
    };
    if result == 0 { Ok(ended) } else { Err(io::Error::last_os_error()) }
}

/// Reaps a child of ours if it has ended, and counts what it used.
pub(super) fn reap_if_ended(pid: libc::pid_t, usage: &mut Usage) -> Reaped {
    let mut status = 0;
    // Before it is reaped: then the kernel forgets.
    let io = if look_for_end(pid).unwrap_or(false) { IoCounts::of_process(pid) } else { IoCounts::default() };
    // SAFETY: plain data, filled by wait4. Whatever is not our child has nothing to be waited for.
    let (number, used) = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        (libc::wait4(pid, &raw mut status, libc::WNOHANG, &mut used), used)
    };
    match number {
        0 => Reaped::Lives,
        number if number == pid => {
            usage.add(Usage::of(&used, io));
            Reaped::Ended(Ending::of(status))
        }
        _ => Reaped::Gone,
    }
}

impl Usage {
    fn of(used: &libc::rusage, io: IoCounts) -> Self {
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 * 1e-6;
        Self {
            cpu_seconds: seconds(used.ru_utime) + seconds(used.ru_stime),
            peak_rss_bytes: u64::try_from(used.ru_maxrss).unwrap_or(0) * 1024,
            io: IoCounts { major_faults: u64::try_from(used.ru_majflt).unwrap_or(0), ..io },
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.cpu_seconds += other.cpu_seconds;
        self.peak_rss_bytes = self.peak_rss_bytes.max(other.peak_rss_bytes);
        self.io += other.io;
    }
}

impl Process {
    /// Waits until the process has ended or `timeout` is over; does not reap. Returns whether it has ended.
    pub(super) fn ended_within(&self, timeout: Option<Duration>) -> io::Result<bool> {
        let Some(timeout) = timeout else { return self.ending().map(|_| true) };
        let deadline = std::time::Instant::now() + timeout;
        // It is our unreaped child, so its number cannot have been reused.
        let Some(pidfd) = descriptors::open_process(self.pid) else { return self.has_ended_by(deadline) };
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now()).as_millis();
            let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: one valid pollfd.
            match unsafe { libc::poll(&mut poll, 1, c_int::try_from(left).unwrap_or(c_int::MAX)) } {
                0 => return Ok(false),
                n if n > 0 => return Ok(true),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Waits until the process has ended or it is `deadline`, by asking again and again. Returns whether it has ended.
    fn has_ended_by(&self, deadline: std::time::Instant) -> io::Result<bool> {
        let mut pause = Duration::from_micros(200);
        loop {
            let ended = look_for_end(self.pid)?;
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if ended || left.is_zero() {
                return Ok(ended);
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 3 / 2).min(Duration::from_millis(10));
        }
    }

    /// Waits until the process has ended, and tells how; does not reap.
    pub(super) fn ending(&self) -> io::Result<Ending> {
        loop {
            // SAFETY: plain data, filled by waitid; our unreaped child, which stays unreaped.
            let (result, about) = unsafe {
                let mut about: libc::siginfo_t = std::mem::zeroed();
                let id = self.pid as libc::id_t;
                (libc::waitid(libc::P_PID, id, &mut about, libc::WEXITED | libc::WNOWAIT), about)
            };
            if result == 0 {
                // SAFETY: waitid has filled in what belongs to an ended child.
                let number = unsafe { about.si_status() };
                let by_itself = about.si_code == libc::CLD_EXITED;
                return Ok(if by_itself { Ending::Exited(number) } else { Ending::Signalled(number) });
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Waits for the end of the process, and reaps it.
    pub(super) fn reap(self) -> io::Result<(Ending, Usage)> {
        let mut status = 0;
        self.ending()?;
        let io = IoCounts::of_process(self.pid);
        // SAFETY: plain data, filled by wait4.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        loop {
            // SAFETY: our unreaped child.
            if unsafe { libc::wait4(self.pid, &mut status, 0, &mut usage) } == self.pid {
                break;
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok((Ending::of(status), Usage::of(&usage, io)))
    }
}
