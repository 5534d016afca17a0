//! Slots: one place for one tool process each; spawn, feed, limit, kill, account, clean up.
//!
//! A slot keeps one private working directory for all its tasks. A task is one ordinary execution of
//! the tool on real files there; what it wrote goes to a [`Sink`] if and only if it ended well.
//! Nothing here knows of records, journals or Python.

mod area;
mod attempt;
mod bytes;
mod clean;
mod collect;
mod control;
mod descriptors;
mod family;
mod file_profile;
mod frames;
mod io_counts;
mod lengths;
mod links;
mod live;
mod mark;
mod memory;
mod outcome;
mod place;
mod pool;
mod preloaded;
mod private;
mod reread;
mod rights;
mod run;
mod running_time;
mod serve;
mod shared;
mod spawn;
mod start;
mod still;
mod talk;
mod task;
#[cfg(test)]
mod tests;
mod text;
mod trial;
mod user_namespace;
mod view;
mod wait;
mod warm;
mod watch;
mod words;
mod work;
mod written;

pub use file_profile::{CallCounts, FileCounts, FileProfile, SIZE_CLASSES};
pub use io_counts::IoCounts;
pub use lengths::Lengths;
pub use links::Links;
pub use memory::Counter;
pub use outcome::{Failure, Outcome, Sink};
pub use pool::{Event, Pool, Settings};
pub use reread::can_reread;
pub use spawn::{Ending, Usage};
pub use task::{Collect, Output, OwnFolder, Pack, Placement, Task};
pub use trial::try_view;
pub use user_namespace::user_namespace;
pub use view::View;
pub use watch::{Watchdog, sweep};
