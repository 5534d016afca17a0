//! Letting a warm tool go.

use std::fs::File;
use std::io::Read;

use super::super::family::Family;
use super::super::place::Place;
use super::super::spawn::{Process, Usage};

impl Place {
    /// What the warm tool of this slot has started and not waited for.
    pub(super) fn warm_family(&self) -> Family {
        Family::of(self.mark.of_warm())
    }

    /// Kills a warm tool, and a fork of it that nobody knows of; what they used.
    pub(super) fn bury_warm(&self, process: Process) -> Usage {
        let mut used = Usage::default();
        // SAFETY: signals a process group whose leader is not reaped yet.
        unsafe { libc::kill(-process.pid, libc::SIGKILL) };
        if let Ok((_, of_process)) = process.reap() {
            used = of_process;
        }
        for child in children() {
            // SAFETY: a child of this very thread, which runs no task now, and reaps nothing meanwhile.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
        // What hangs in the kernel is the watchdog's, who comes last.
        let _ = self.warm_family().kill(&mut used);
        used
    }

    /// Lets the warm tool of this slot go, if there is one.
    pub(in super::super) fn cool_down(&self) {
        if let Some(server) = self.server().take() {
            drop(server.link);
            self.bury_warm(server.process);
        }
    }
}

/// Children of this thread.
fn children() -> Vec<libc::pid_t> {
    let mut text = String::new();
    // Where the kernel does not tell, the watchdog finds what is left.
    let _ = File::open("/proc/thread-self/children").and_then(|mut file| file.read_to_string(&mut text));
    text.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}
