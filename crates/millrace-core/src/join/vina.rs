//! What AutoDock Vina says on standard output.

use super::{JoinError, Joiner};
use std::io::{self, BufRead, Write};

/// Logs of runs with `--ligand` (each with its head) or of one run with `--batch` (one head for all ligands).
#[derive(Default)]
pub(super) struct Log {
    /// Ligands of the whole `--batch`, as its head names them; none for `--ligand`.
    n_ligands: Option<u64>,
    /// What the head says of `--cpu` if 1 was given to the tasks and not by the user.
    cpu: Option<String>,
    /// Whether there is no head but the version (`--verbosity 0`).
    quiet: bool,
    head: Option<Vec<u8>>,
}

impl Log {
    /// Makes the joiner from `n=40,cpu=0,quiet`, each of which may be left out.
    pub(super) fn new(parameter: &str) -> Option<Self> {
        let mut log = Self::default();
        for part in parameter.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('=') {
                Some(("n", value)) => log.n_ligands = Some(value.parse().ok()?),
                Some(("cpu", value)) => log.cpu = Some(value.to_owned()),
                None if part == "quiet" => log.quiet = true,
                _ => return None,
            }
        }
        Some(log)
    }

    /// Reads the head of a block: all up to the line that says that the maps are there.
    fn read_head(&self, block: &mut dyn BufRead) -> Result<Vec<u8>, JoinError> {
        let mut head = Vec::new();
        let mut line = Vec::new();
        // Vina counts the ligands of a batch in its head, but not if there is one.
        let mut count = self.n_ligands.filter(|&n_ligands| n_ligands > 1);
        loop {
            line.clear();
            if block.read_until(b'\n', &mut line)? == 0 {
                return Err(shape("a log without its head"));
            }
            let is_after = line.starts_with(b"Grid ") || line.starts_with(b"Exhaustiveness: ");
            if is_after && let Some(n_ligands) = count.take() {
                writeln!(head, "Ligands (batch mode): {n_ligands} molecules")?;
            }
            if line.starts_with(b"CPU: ")
                && let Some(cpu) = &self.cpu
            {
                writeln!(head, "CPU: {cpu}")?;
            } else if self.n_ligands.is_none() || !line.starts_with(b"Ligands (batch mode): ") {
                head.extend_from_slice(&line);
            }
            if self.quiet || line.ends_with(b" ... done.\n") {
                return Ok(head);
            }
        }
    }
}

fn shape(problem: &str) -> JoinError {
    JoinError::Shape { format: "AutoDock Vina", problem: problem.to_owned() }
}

impl Joiner for Log {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        let head = self.read_head(block)?;
        if self.n_ligands.is_none() {
            out.write_all(&head)?;
        } else if let Some(first) = &self.head {
            if *first != head {
                return Err(shape("two batches with different heads"));
            }
        } else {
            out.write_all(&head)?;
            self.head = Some(head);
        }
        io::copy(block, out)?;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }
}
