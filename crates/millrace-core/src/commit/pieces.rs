//! The parts that blocks have in an output which several processes write.

use std::io::BufReader;

use super::{BUFFER_BYTES, Excerpt, Journals, StoredBlock, joined};
use crate::join::layout::{Before, Layout, Outline, end_behind, is_separable, join_behind, measure};
use crate::join::{JoinError, joiner};

/// A block and its part of the output, which any process can write.
#[derive(Debug, Clone)]
pub struct OutputPiece {
    /// The block.
    pub stored: StoredBlock,
    /// Records that it is of.
    pub n_records: u64,
    /// What its joiner must know; `None`: the block is copied unchanged.
    pub before: Option<Before>,
    /// Its bytes in the output.
    pub length: u64,
}

impl OutputPiece {
    /// The first `most` bytes of it in the output, which is joined by `join`.
    ///
    /// # Errors
    /// If the block cannot be read, is not what was committed or has not the shape that it should.
    pub fn excerpt(&self, join: &str, most: usize) -> Result<Excerpt, JoinError> {
        let (mut journals, mut excerpt) = (Journals::default(), Excerpt::new(most));
        let mut reader = reader(&mut journals, &self.stored)?;
        match &self.before {
            Some(before) => join_behind(join, before, self.n_records, &mut reader, &mut excerpt)?,
            None => drop(std::io::copy(&mut reader, &mut excerpt)?),
        }
        Ok(excerpt)
    }
}

fn reader<'a>(journals: &'a mut Journals, stored: &'a StoredBlock) -> Result<impl std::io::BufRead + 'a, JoinError> {
    Ok(BufReader::with_capacity(BUFFER_BYTES, journals.holding(stored)?.read(&stored.block)))
}

/// Finds the part that each block has in an output, in order; reads blocks only where their outline does not say it.
#[derive(Debug)]
pub struct OutputLayout {
    join: String,
    is_plain: bool,
    layout: Layout,
    /// Blocks of different kinds, which tell what a later one may not fit to.
    kinds: Vec<(u64, StoredBlock)>,
    /// The last block with an end of the output.
    last: Option<OutputPiece>,
}

impl OutputLayout {
    /// For an output that is joined by `join`; `None` if one joiner must see all of its blocks.
    ///
    /// # Errors
    /// [`JoinError::Unknown`] if there is no such `join`.
    pub fn new(join: &str) -> Result<Option<Self>, JoinError> {
        let is_plain = joiner(join)?.is_plain_copy();
        let layout = Layout::default();
        let new = || Self { join: join.to_owned(), is_plain, layout, kinds: vec![], last: None };
        Ok(is_separable(join)?.then(new))
    }

    /// The part of the next block, which is of `n_records`.
    ///
    /// # Errors
    /// If it does not fit those before it, or must be read and cannot be.
    pub fn place(&mut self, n_records: u64, stored: &StoredBlock) -> Result<OutputPiece, JoinError> {
        let stored = stored.clone();
        if self.is_plain {
            let length = stored.block.length;
            return Ok(OutputPiece { stored, n_records, before: None, length });
        }
        let outline = self.outline(n_records, &stored)?;
        let before = self.layout.before().clone();
        let is_new = outline.silent || outline.framed_nothing || outline.unended || !before.headed;
        let Some(length) = self.layout.add(n_records, &outline) else { return Err(self.misfit(n_records, stored)) };
        if is_new && self.kinds.len() < MOST_KINDS {
            self.kinds.push((n_records, stored.clone()));
        }
        let piece = OutputPiece { stored, n_records, before: Some(before), length };
        if outline.foot.is_some() {
            self.last = Some(piece.clone());
        }
        Ok(piece)
    }

    /// What is known of a block: from its name in the journal, or by reading it.
    fn outline(&self, n_records: u64, stored: &StoredBlock) -> Result<Outline, JoinError> {
        if let Some(known) = Outline::decode(&stored.block.name).filter(|outline| self.layout.holds(outline)) {
            return Ok(known);
        }
        let mut journals = Journals::default();
        let first = self.layout.before().records;
        let outline = measure(&self.join, first, n_records, &mut reader(&mut journals, stored)?)?;
        Ok(outline.unwrap_or_default())
    }

    /// Why a block does not fit, in the words of the joiner that sees it with the others.
    fn misfit(&self, n_records: u64, stored: StoredBlock) -> JoinError {
        let mut blocks = self.kinds.clone();
        blocks.push((n_records, stored));
        let problem = || "a batch has not the same beginning, end or counts as those before it".to_owned();
        let unknown = |_| JoinError::Shape { format: "this", problem: problem() };
        joined(&self.join, &blocks, &[], 0).map_or_else(|error| error, unknown)
    }

    /// What follows the last block.
    ///
    /// # Errors
    /// If that block cannot be read, or is not what was committed.
    pub fn end(&self) -> Result<Vec<u8>, JoinError> {
        let Some(OutputPiece { stored, n_records, before: Some(before), .. }) = &self.last else { return Ok(vec![]) };
        let mut journals = Journals::default();
        end_behind(&self.join, before, *n_records, &mut reader(&mut journals, stored)?)
    }
}

/// Most blocks that are kept to say what does not fit.
const MOST_KINDS: usize = 8;
