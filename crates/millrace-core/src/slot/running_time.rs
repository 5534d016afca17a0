//! Time limits that do not count time in which this process was stopped.
//!
//! A batch system suspends a job, a terminal stops its group, a cgroup is frozen: tools stop and the clock goes on. They are
//! not late for that. Our own loop was stopped with them, so it looks again much later than it had meant to.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Longest pause between two looks at a limit; a gap of more than twice that is taken for a stop.
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Counts the time in which this process ran, for a loop that asks at least once in `MAX_PAUSE`.
pub(super) struct RunningTime {
    looked_at: Cell<Instant>,
    counted: Cell<Duration>,
}

impl RunningTime {
    /// Begins at 0.
    pub(super) fn begin() -> Self {
        Self { looked_at: Cell::new(Instant::now()), counted: Cell::new(Duration::ZERO) }
    }

    /// Time counted until now.
    pub(super) fn elapsed(&self) -> Duration {
        self.elapsed_at(Instant::now())
    }

    fn elapsed_at(&self, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.looked_at.replace(now));
        let counted = if gap > 2 * MAX_PAUSE { MAX_PAUSE } else { gap };
        self.counted.set(self.counted.get() + counted);
        self.counted.get()
    }
}

/// An end of time, as [`RunningTime`] counts it.
pub(super) struct Deadline {
    time: RunningTime,
    limit: Duration,
}

impl Deadline {
    /// Sets the end to `limit` from now.
    pub(super) fn after(limit: Duration) -> Self {
        Self { time: RunningTime::begin(), limit }
    }

    /// Whether the end has come.
    pub(super) fn is_over(&self) -> bool {
        self.time.elapsed() >= self.limit
    }

    /// Time until the next look.
    pub(super) fn pause(&self) -> Duration {
        self.limit.saturating_sub(self.time.elapsed()).min(MAX_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_counts_as_one_pause() {
        let time = RunningTime::begin();
        let begun = time.looked_at.get();
        let at = |seconds: f64| time.elapsed_at(begun + Duration::from_secs_f64(seconds)).as_secs_f64();
        let counted = [at(1.0), at(2.5), at(602.5), at(603.0)];
        assert_eq!(counted, [1.0, 2.5, 3.5, 4.0]);
    }
}
