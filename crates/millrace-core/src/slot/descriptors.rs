//! How many files may be open at once: each slot has some, and the usual limit is for far fewer slots than a node may have.
//! And descriptors that stand for a process, where the kernel has them.

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The limit that this process was started with.
static GIVEN: OnceLock<Option<libc::rlimit64>> = OnceLock::new();

/// Raises this process's soft limit to the hard one; see [`give_back`].
pub(super) fn raise() {
    GIVEN.get_or_init(|| {
        // SAFETY: plain data and system calls. Where the limit cannot be raised, it stays as it is.
        unsafe {
            let mut given: libc::rlimit64 = std::mem::zeroed();
            if libc::prlimit64(0, libc::RLIMIT_NOFILE, std::ptr::null(), &mut given) != 0 {
                return None;
            }
            let raised = libc::rlimit64 { rlim_cur: given.rlim_max, rlim_max: given.rlim_max };
            libc::prlimit64(0, libc::RLIMIT_NOFILE, &raised, std::ptr::null_mut());
            Some(given)
        }
    });
}

/// Gives the calling process the limit that a tool has without us: some look at each number up to it, or use `select`.
///
/// Async-signal-safe.
pub(super) fn give_back() {
    if let Some(Some(given)) = GIVEN.get() {
        // SAFETY: a system call on plain data.
        unsafe { libc::prlimit64(0, libc::RLIMIT_NOFILE, given, std::ptr::null_mut()) };
    }
}

/// Closes every descriptor of the calling process that is not below `first`.
///
/// Kernels before 5.9, and containers whose profile does not know `close_range`, have only the list of what is open.
pub(super) fn close_from(first: libc::c_int) {
    // SAFETY: the process has one thread, and uses none of them any more.
    if unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) } == 0 {
        return;
    }
    let listed = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    // Read to its end before any is closed: the list itself is one of them, and gone by then.
    let open: Vec<libc::c_int> = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in open.into_iter().filter(|number| *number >= first) {
        // SAFETY: as above.
        unsafe { libc::close(descriptor) };
    }
}

/// Opens a descriptor that stands for process `pid`, whatever becomes of its number; None where that cannot be.
///
/// Kernels before 5.3, and containers whose profile does not know `pidfd_open`, have none.
pub(super) fn open_process(pid: libc::pid_t) -> Option<OwnedFd> {
    // SAFETY: returns a descriptor that is nobody else's, or -1.
    let held = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let held = i32::try_from(held).ok().filter(|held| *held >= 0)?;
    // SAFETY: as above.
    Some(unsafe { OwnedFd::from_raw_fd(held) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lives_can_be_held() {
        let own = libc::pid_t::try_from(std::process::id()).unwrap();
        assert!(open_process(own).is_some());
        assert!(open_process(-1).is_none());
    }
}
