//! The record protocol (`docs/records.md`): records go to a program that stays alive, and an answer to each comes back.
//!
//! Both ways a frame is `NUMBER LENGTH`, a newline, so many bytes, a newline. The number of an answer is that of its
//! record, so that no byte is ever taken for the answer to another one. Records are sent ahead while answers are awaited:
//! a program never waits for us.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::frames::{LONGEST_HEAD, Outgoing, PIECE, head};
use super::running_time::Deadline;

/// How long nothing comes before it is seen whether the program still lives: another may hold its end of the pipe.
const LOOK: Duration = Duration::from_secs(1);

/// Why the records of a task were not all answered.
#[derive(Debug)]
pub(super) enum Broken {
    /// The program ended, or closed its output, after this many answers.
    Ended(u64),
    /// There was no more time.
    Late,
    /// What it wrote is no answer to what it was asked: in words.
    Garbled(String),
    /// Our side failed.
    Io(io::Error),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Our ends of the two pipes of one program.
#[derive(Debug)]
pub(super) struct Talk {
    to: File,
    from: File,
    /// Records sent in whole in the program's life.
    sent: u64,
    /// Answers taken in its life.
    taken: u64,
    received: Vec<u8>,
    seen: usize,
    /// Bytes of the answer that are still to come, its last newline among them; None: between answers.
    open: Option<u64>,
}

/// A pipe: the end that is read, and the one that is written.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh descriptors that nobody else has.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn never_waits(end: OwnedFd) -> io::Result<File> {
    // SAFETY: plain system call on a live descriptor.
    if unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(end))
}

impl Talk {
    /// Our ends, and the program's standard input and output.
    pub(super) fn begin() -> io::Result<(Self, File, File)> {
        let (stdin, to) = pipe()?;
        let (from, stdout) = pipe()?;
        let talk = Self {
            to: never_waits(to)?,
            from: never_waits(from)?,
            sent: 0,
            taken: 0,
            received: Vec::new(),
            seen: 0,
            open: None,
        };
        Ok((talk, File::from(stdin), File::from(stdout)))
    }

    /// Sends the records of `batch`, which are so long, and writes the answers to `answers` one after another. Returns
    /// when the first answer was there.
    ///
    /// `lives` is asked now and then, while nothing comes.
    pub(super) fn ask(
        &mut self,
        batch: &mut File,
        lengths: &[u64],
        answers: &mut impl Write,
        deadline: Option<&Deadline>,
        lives: impl Fn() -> io::Result<bool>,
    ) -> Result<Instant, Broken> {
        let mut first = None;
        let until = self.taken + lengths.len() as u64;
        let mut outgoing = Outgoing::new(batch, lengths, self.sent);
        while self.taken < until {
            let wants_room = outgoing.fill()?;
            match self.wait(wants_room, deadline)? {
                Ready { late: true, .. } => return Err(Broken::Late),
                Ready { room: false, data: false, .. } if !lives()? => {
                    self.receive(answers, until, &mut first)?;
                    if self.taken < until {
                        return Err(self.ended(until, lengths));
                    }
                }
                Ready { room, data, .. } => {
                    // Answers first: a program that waits for us to take them cannot take records. Its end may come
                    // behind the last of them.
                    if data && !self.receive(answers, until, &mut first)? && self.taken < until {
                        return Err(self.ended(until, lengths));
                    }
                    if room {
                        outgoing.write(&mut self.to)?;
                        self.sent = outgoing.number;
                    }
                }
            }
        }
        if self.open.is_some() || !self.received.is_empty() {
            return Err(Broken::Garbled("it answered more records than it was given".to_owned()));
        }
        if outgoing.fill()? {
            return Err(Broken::Garbled("it answered a record before it had read it".to_owned()));
        }
        Ok(first.unwrap_or_else(Instant::now))
    }

    /// Ends the program's input; the first bytes of what it writes from then on, until it ends or `deadline`.
    pub(super) fn rest(self, deadline: Instant, lives: impl Fn() -> io::Result<bool>) -> io::Result<Vec<u8>> {
        let Self { to, mut from, .. } = self;
        drop(to);
        let (mut rest, mut piece) = (vec![], [0; PIECE]);
        loop {
            let goes_on = lives()? && Instant::now() < deadline;
            match from.read(&mut piece) {
                Ok(0) => return Ok(rest),
                Ok(n) => rest.extend_from_slice(&piece[..n.min(LONGEST_HEAD.saturating_sub(rest.len()))]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !goes_on => return Ok(rest),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut end = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                    // SAFETY: one valid entry. Interrupted or not, it is read again.
                    unsafe { libc::poll(&mut end, 1, LOOK.as_millis() as libc::c_int) };
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn ended(&self, until: u64, lengths: &[u64]) -> Broken {
        Broken::Ended(self.taken + lengths.len() as u64 - until)
    }

    /// Waits until something can be done.
    fn wait(&self, wants_room: bool, deadline: Option<&Deadline>) -> io::Result<Ready> {
        let events = if wants_room { libc::POLLOUT } else { 0 };
        let mut ends = [
            libc::pollfd { fd: self.from.as_raw_fd(), events: libc::POLLIN, revents: 0 },
            // A descriptor below 0 is passed over; an end whose reader is gone would be told again and again.
            libc::pollfd { fd: if wants_room { self.to.as_raw_fd() } else { -1 }, events, revents: 0 },
        ];
        let left = deadline.map_or(LOOK, |deadline| deadline.pause().min(LOOK));
        // SAFETY: two valid entries.
        if unsafe { libc::poll(ends.as_mut_ptr(), 2, left.as_millis() as libc::c_int) } < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Ready::default()) } else { Err(error) };
        }
        let late = deadline.is_some_and(Deadline::is_over);
        Ok(Ready { data: ends[0].revents != 0, room: ends[1].revents != 0, late })
    }

    /// Takes what there is; false at the end.
    fn receive(&mut self, answers: &mut impl Write, until: u64, first: &mut Option<Instant>) -> Result<bool, Broken> {
        let mut piece = [0; PIECE];
        loop {
            match self.from.read(&mut piece) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    self.received.extend_from_slice(&piece[..n]);
                    self.parse(answers, until, first)?;
                    if n < PIECE {
                        return Ok(true);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn parse(&mut self, answers: &mut impl Write, until: u64, first: &mut Option<Instant>) -> Result<(), Broken> {
        while self.seen < self.received.len() {
            let rest = &self.received[self.seen..];
            let Some(left) = self.open else {
                let Some(at) = memchr::memchr(b'\n', &rest[..rest.len().min(LONGEST_HEAD)]) else {
                    if rest.len() < LONGEST_HEAD {
                        break;
                    }
                    return Err(self.garbled(rest));
                };
                let Some((number, length)) = head(&rest[..at]) else { return Err(self.garbled(&rest[..at])) };
                if number != self.taken + 1 || self.taken == until {
                    let wanted = self.taken + 1;
                    return Err(Broken::Garbled(format!("it answered record {number} where record {wanted} was next")));
                }
                self.seen += at + 1;
                self.open = Some(length + 1);
                continue;
            };
            let n = rest.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let is_last = n as u64 == left;
            if is_last && rest[n - 1] != b'\n' {
                let words = format!("its answer to record {} is longer than it said", self.taken + 1);
                return Err(Broken::Garbled(words));
            }
            answers.write_all(&rest[..n - usize::from(is_last)])?;
            self.seen += n;
            self.open = Some(left - n as u64).filter(|_| !is_last);
            if is_last {
                self.taken += 1;
                first.get_or_insert_with(Instant::now);
            }
        }
        self.received.drain(..self.seen);
        self.seen = 0;
        Ok(())
    }

    fn garbled(&self, bytes: &[u8]) -> Broken {
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST_HEAD)]).into_owned();
        Broken::Garbled(format!(
            "it wrote {shown:?} where the number and length of the answer to record {} were due",
            self.taken + 1
        ))
    }
}

#[derive(Debug, Default)]
struct Ready {
    data: bool,
    room: bool,
    late: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_last_answer_that_fills_the_buffer_counts_though_the_program_has_ended() {
        let (mut talk, _stdin, mut stdout) = Talk::begin().unwrap();
        let answer = vec![b'a'; PIECE - "1 12345\n\n".len()];
        let frame = [format!("1 {}\n", answer.len()).as_bytes(), &answer, b"\n"].concat();
        assert_eq!(frame.len(), PIECE);
        stdout.write_all(&frame).unwrap();
        drop(stdout);
        let mut batch = tempfile::tempfile().unwrap();
        let mut answers = vec![];
        talk.ask(&mut batch, &[0], &mut answers, None, || Ok(false)).unwrap();
        assert!(answers == answer);
    }
}
