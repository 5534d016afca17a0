//! Hearing of a tool that it touches its input.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use super::super::running_time::Deadline;
use super::super::spawn::Process;

/// A tool touches its input within this time, or is not waited for.
const MOST_STARTING: Duration = Duration::from_secs(600);

/// Between two looks at whether a tool still lives that was not heard of.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until `process` says that it touches its input.
pub(super) fn greet(
    process: &Process,
    listener: &UnixListener,
    timeout: Option<Duration>,
) -> Result<UnixStream, String> {
    let deadline = Deadline::after(timeout.map_or(MOST_STARTING, |timeout| timeout.min(MOST_STARTING)));
    loop {
        match listener.accept() {
            Ok((link, _)) if peer(&link) == Some(process.pid) => return Ok(link),
            Ok(_) => {} // somebody else, who hears nothing
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(format!("it cannot be heard: {error}")),
        }
        if process.ended_within(Some(Duration::ZERO)).unwrap_or(true) {
            return Err("nothing was heard of it (a static program, perhaps, or one that starts others)".to_owned());
        }
        if deadline.is_over() {
            return Err("it did not read its input in time".to_owned());
        }
        await_any(process, listener);
    }
}

/// Waits until somebody connects or the process ends, but not for long.
fn await_any(process: &Process, listener: &UnixListener) {
    // SAFETY: our unreaped child, so the number is its own; two valid entries; a descriptor of our own that is closed.
    unsafe {
        let ended = libc::syscall(libc::SYS_pidfd_open, process.pid, 0) as libc::c_int;
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut entries = [entry(listener.as_raw_fd()), entry(ended)];
        libc::poll(entries.as_mut_ptr(), 2, LOOK.as_millis() as libc::c_int);
        libc::close(ended);
    }
}

/// The process at the other end.
fn peer(link: &UnixStream) -> Option<libc::pid_t> {
    // SAFETY: plain data, filled by the call.
    unsafe {
        let mut who: libc::ucred = std::mem::zeroed();
        let mut length = size_of::<libc::ucred>() as libc::socklen_t;
        let about = (&raw mut who).cast();
        let done = libc::getsockopt(link.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, about, &mut length);
        (done == 0).then_some(who.pid)
    }
}
