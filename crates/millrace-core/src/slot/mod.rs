//! Slots: one place for one tool process each; spawn, feed, limit, kill, account, clean up.
//!
//! A slot keeps one private working directory for all its tasks. A task is one ordinary execution of
//! the tool on real files there; what it wrote goes to a [`Sink`] if and only if it ended well.
//! Nothing here knows of records, journals or Python.

mod area;
mod descriptors;
mod family;
mod links;
mod mark;
mod memory;
mod pool;
mod private;
mod spawn;
mod still;
mod task;
#[cfg(test)]
mod tests;
mod text;
mod watch;
mod words;
mod work;
mod written;

pub use links::Links;
pub use memory::Counter;
pub use pool::{Event, Pool, Settings};
pub use spawn::{Ending, Usage};
pub use task::{Collect, Failure, Outcome, Output, Placement, Sink, Task};
pub use watch::{Watchdog, sweep};
