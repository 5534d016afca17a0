//! How many files may be open at once: each slot has some, and the usual limit is for far fewer slots than a node may have.

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
