//! Puts right what the search of the candidates cannot know of the search of the whole database.

use std::io::{BufRead, Write};

use super::JoinError;

mod hmmer;

use hmmer::Searched;

/// Copies `block`, an output of the search of the candidates, to `out` as the search of the whole would have written
/// it. `side` is what the step that chose the candidates has written down for the patch called `kind`.
///
/// # Errors
/// [`JoinError::Shape`] if the block is not what the format promises, [`JoinError::Unknown`] if there is no such patch.
pub fn patch(
    kind: &str,
    side: &mut dyn BufRead,
    block: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), JoinError> {
    match kind {
        "hmmer-report" => hmmer::report(Searched::All, side, block, out),
        "hmmer-candidates" => hmmer::report(Searched::Candidates, side, block, out),
        "hmmer-candidates-z" => hmmer::report(Searched::CandidatesWithZ, side, block, out),
        "hmmer-settings" => hmmer::settings(side, block, out),
        _ => Err(JoinError::Unknown(kind.to_owned())),
    }
}
