//! Warm tools: the tool is started once a slot, up to its first touch of the input, and forked there for each task.
//!
//! Each fork runs to its end on real files, in the folder of the slot, as a tool that was started for the task would. What
//! it shares with the others is what the tool had in memory by then, so nothing of that may depend on the task. That is
//! looked at from outside (`look`), and by comparing: the first tasks of each such tool, and then some, are run without
//! it, too, and the bytes compared. Whatever speaks against it, tools are started for each task as ever.

mod begin;
mod compare;
mod end;
mod greet;
mod held;
mod look;
mod order;
mod run;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) use begin::Server;

/// The library that is preloaded (`preload/warm.rs`); empty where there is none.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/warm.so"));

/// Tasks of each warm tool that are compared before it is trusted.
const FIRST: u64 = 3;

/// Of the others, each of this number is compared.
const EACH: u64 = 50;

/// Tasks that may fail warm and then run well otherwise.
const MOST_STRIKES: u32 = 3;

/// What all slots know of the tool.
#[derive(Debug, Default)]
pub(super) struct Warmth {
    state: Mutex<State>,
    library: Mutex<Option<File>>,
    strikes: AtomicU32,
    /// Results were kept that nothing was compared with.
    unseen: AtomicBool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Untried,
    /// In this slot; the others wait for how it goes.
    Tried(usize),
    Trusted,
    /// Never again.
    Cold,
}

impl Warmth {
    /// Whether `slot` may run a task warm.
    fn turn(&self, slot: usize) -> bool {
        let mut state = self.state();
        if *state == State::Untried {
            *state = State::Tried(slot);
        }
        matches!(*state, State::Trusted) || *state == State::Tried(slot)
    }

    /// The first tasks were equal: the other slots may, too.
    fn trust(&self) {
        let mut state = self.state();
        if *state != State::Cold {
            *state = State::Trusted;
        }
    }

    /// No task is run warm any more; the reason, if nobody has said one before.
    fn cool(&self, why: String) -> Option<String> {
        let was = std::mem::replace(&mut *self.state(), State::Cold);
        (was != State::Cold).then_some(why)
    }

    fn is_cold(&self) -> bool {
        *self.state() == State::Cold
    }

    /// A task failed warm that ran well otherwise; whether there were too many.
    fn strike(&self) -> bool {
        self.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_STRIKES
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the library is: in memory, as the folders of slots may be where nothing is to be executed.
    fn library(&self) -> io::Result<String> {
        let mut library = self.library.lock().unwrap_or_else(PoisonError::into_inner);
        if library.is_none() {
            *library = Some(in_memory()?);
        }
        let number = library.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        Ok(format!("/proc/{}/fd/{number}", std::process::id()))
    }
}

fn in_memory() -> io::Result<File> {
    let name = CString::new("millrace-warm")?;
    // SAFETY: a name that ends with a NUL.
    let number = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if number < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor that is nobody else's.
    let mut file = unsafe { File::from_raw_fd(number) };
    file.write_all(LIBRARY)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slot_tries_and_the_others_wait() {
        let warmth = Warmth::default();
        assert!(warmth.turn(1) && !warmth.turn(0) && warmth.turn(1));
        warmth.trust();
        assert!(warmth.turn(0) && warmth.turn(1));
    }

    #[test]
    fn what_is_cold_stays_so_and_one_reason_is_told() {
        let warmth = Warmth::default();
        assert!(warmth.turn(0));
        assert_eq!(warmth.cool("threads".to_owned()), Some("threads".to_owned()));
        assert_eq!(warmth.cool("pipes".to_owned()), None);
        warmth.trust();
        assert!(warmth.is_cold() && !warmth.turn(0));
    }

    #[test]
    fn some_failures_are_borne() {
        let warmth = Warmth::default();
        assert_eq!([warmth.strike(), warmth.strike(), warmth.strike()], [false, false, true]);
    }
}
