use pyo3::prelude::*;
use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Ends the process after some time. A thread that needs no Python, for calls that keep all threads of Python waiting.
#[pyclass(module = "millrace._core")]
struct Alarm {
    cancel: Option<Sender<()>>,
}

#[pymethods]
impl Alarm {
    /// After `seconds`, writes `words` to standard error and ends the process with `status`.
    #[new]
    fn new(seconds: f64, words: String, status: i32) -> PyResult<Self> {
        let (cancel, cancelled) = mpsc::channel();
        let after = Duration::from_secs_f64(seconds);
        std::thread::Builder::new().name("alarm".into()).spawn(move || {
            if cancelled.recv_timeout(after) == Err(RecvTimeoutError::Timeout) {
                let _ = std::io::stderr().write_all(words.as_bytes());
                // SAFETY: nothing of the process is used afterwards; what others wait for would never come.
                unsafe { libc::_exit(status) }
            }
        })?;
        Ok(Self { cancel: Some(cancel) })
    }

    /// Nothing happens any more.
    fn cancel(&mut self) {
        self.cancel = None;
    }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Alarm>()
}
