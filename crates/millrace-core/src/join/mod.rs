//! Turns the blocks of all batches, in input order, into the bytes that one serial run writes.
//!
//! A block is what one ordinary execution of the tool wrote to one output stream for one batch.
//! A [`Joiner`] sees every block once, in order, and streams the joined bytes out; it keeps only
//! what it needs to carry on (a footer, a counter), never a whole block of unbounded size.
//! Nothing here knows of processes, journals or Python.

use std::io::{self, BufRead, Write};

use layout::{Before, Outline};

mod blast;
mod diamond;
pub mod fragment;
mod frame;
mod hmmer;
pub mod layout;
mod lines;
mod obabel;
mod prodigal;
mod totals;
mod vina;
mod xml;

/// What a joiner can fail with.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Reading a block or writing the output failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A block does not have the shape that its format promises.
    #[error("cannot join {format} output: {problem}")]
    Shape {
        /// The format, in the tool's words.
        format: &'static str,
        /// What was expected and what was found.
        problem: String,
    },
    /// The specification names no joiner or has wrong parameters.
    #[error("unknown join {0}")]
    Unknown(String),
}

/// Joins the blocks of one output stream.
pub trait Joiner: Send {
    /// Appends the contribution of the next batch, `n_records` long, to `out`.
    ///
    /// # Errors
    /// [`JoinError::Shape`] if the block is not what the format promises, never a guess.
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError>;

    /// Writes the one block of an input without a record, which is the output, whatever the format is.
    ///
    /// # Errors
    /// [`JoinError::Shape`] if what Millrace has added to the command is not in it.
    fn no_record(&mut self, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        io::copy(block, out)?;
        Ok(())
    }

    /// Writes what follows the last batch (a footer, a total).
    ///
    /// # Errors
    /// As [`Joiner::block`].
    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError>;

    /// The blocks that follow were written by the command in its form `form`: 0 is the present one; others had other paths
    /// in it. What frames the output is that of the present form; of another form, it need only be the same in all blocks.
    fn set_form(&mut self, form: u32) {
        let _ = form;
    }

    /// Goes on behind batches that another joiner has joined; before the first block.
    fn resume(&mut self, before: &Before) {
        let _ = before;
    }

    /// What others must know of the last block to join theirs without it, but for its length. `None`: one joiner must see all
    /// blocks.
    fn outline(&self) -> Option<Outline> {
        None
    }

    /// Whether blocks are copied unchanged, so that the caller may copy without looking.
    fn is_plain_copy(&self) -> bool {
        false
    }
}

struct Concat;

impl Joiner for Concat {
    fn block(&mut self, _n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        io::copy(block, out)?;
        Ok(())
    }

    fn finish(&mut self, _out: &mut dyn Write) -> Result<(), JoinError> {
        Ok(())
    }

    fn is_plain_copy(&self) -> bool {
        true
    }
}

/// Joins what there is: the blocks of records, or that of an input without any.
struct OrNothing {
    joiner: Box<dyn Joiner>,
    has_whole: bool,
    form: u32,
    /// Whether a block of the present form has come, whose frame is that of the output.
    has_frame: bool,
}

impl Joiner for OrNothing {
    fn block(&mut self, n_records: u64, block: &mut dyn BufRead, out: &mut dyn Write) -> Result<(), JoinError> {
        self.has_frame |= self.form == 0;
        if !self.has_frame {
            let problem = "the first batch was computed under other paths".to_owned();
            return Err(JoinError::Shape { format: "framed", problem });
        }
        if n_records > 0 {
            return self.joiner.block(n_records, block, out);
        }
        self.has_whole = true;
        self.joiner.no_record(block, out)
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<(), JoinError> {
        if self.has_whole { Ok(()) } else { self.joiner.finish(out) }
    }

    fn set_form(&mut self, form: u32) {
        self.form = form;
        self.joiner.set_form(form);
    }

    fn resume(&mut self, before: &Before) {
        self.joiner.resume(before);
    }

    fn outline(&self) -> Option<Outline> {
        self.joiner.outline()
    }

    fn is_plain_copy(&self) -> bool {
        self.joiner.is_plain_copy()
    }
}

/// Makes the joiner that `spec` names: a name, or `name:parameter`.
///
/// # Errors
/// [`JoinError::Unknown`] if there is no such joiner.
pub fn joiner(spec: &str) -> Result<Box<dyn Joiner>, JoinError> {
    Ok(Box::new(OrNothing { joiner: of_records(spec)?, has_whole: false, form: 0, has_frame: false }))
}

fn of_records(spec: &str) -> Result<Box<dyn Joiner>, JoinError> {
    let (name, parameter) = spec.split_once(':').unwrap_or((spec, ""));
    match name {
        "concat" => Ok(Box::new(Concat)),
        name if name.starts_with("blast-") => blast::joiner(name, parameter),
        name if name.starts_with("hmmer-") => hmmer::joiner(name, parameter),
        "diamond-xml" => Ok(Box::new(diamond::Xml::default())),
        "vina-log" => match vina::Log::new(parameter) {
            Some(log) => Ok(Box::new(log)),
            None => Err(JoinError::Unknown(spec.to_owned())),
        },
        "prodigal" => match prodigal::Numbers::new(parameter) {
            Some(numbers) => Ok(Box::new(numbers)),
            None => Err(JoinError::Unknown(spec.to_owned())),
        },
        "obabel-mol" => Ok(Box::new(obabel::Mol::default())),
        "obabel-pdb" => Ok(Box::new(obabel::Models::pdb())),
        "obabel-pdbqt" => Ok(Box::new(obabel::Models::default())),
        "obabel-cml" => Ok(Box::new(obabel::Cml::default())),
        "xml" => match xml::Xml::new(parameter) {
            Some(xml) => Ok(Box::new(xml)),
            None => Err(JoinError::Unknown(spec.to_owned())),
        },
        _ => match frame::Frame::new(spec) {
            Some(frame) => Ok(Box::new(frame)),
            None => Err(JoinError::Unknown(spec.to_owned())),
        },
    }
}
