//! Joiners: any bytes as blocks.
//!
//! An input is a byte that chooses the join, and blocks with a separator between them, each with a byte that tells the
//! number of its records.

#![no_main]

use libfuzzer_sys::fuzz_target;
use millrace_core::join::fragment;
use millrace_core::join::layout::measure;
use millrace_fuzz::{join_apart, join_blocks, show};

/// Joins that add nothing to the command, so that a run with a single batch is the serial run.
const SPECS: [&str; 39] = [
    "concat",
    "header",
    "header:2",
    "header:^#",
    "header-first:2",
    "footer",
    "footer:2",
    "footer:^#",
    "header\nfooter",
    "header:^#\nfooter:^#",
    "header\ntotals:^# ([0-9]+) of ([0-9]+)$",
    "csv",
    "csv\nunbroken",
    "header\nunbroken",
    "sam",
    "jsonl",
    "xml:r",
    "blast-report",
    "blast-tabular:columns=1",
    "blast-tabular:columns=2,unnamed",
    "blast-tabular:columns=1,delim=2c,unnamed",
    "blast-comments:columns=1",
    "blast-xml",
    "blast-xml2",
    "blast-json",
    "blast-archive",
    "blast-seqalign",
    "blast-seqalign-json",
    "hmmer-report",
    "hmmer-table",
    "hmmer-sections",
    "diamond-xml",
    "vina-log",
    "prodigal:gff",
    "prodigal:gbk",
    "prodigal:sequences",
    "prodigal:genes",
    "obabel-mol",
    "obabel-pdb",
];

/// Joins with options that were added, and others whose blocks are changed on the way.
const CHANGING: [&str; 9] = [
    "vina-log:n=3",
    "header:^#\nfooter\nrestore:^#C:.*( -t [0-9]+)$\t",
    "hmmer-report:--cpu 0",
    "hmmer-report:--cpu 0=2,--dna",
    "hmmer-table:--cpu 0",
    "vina-log:n=3,cpu=0",
    "vina-log:n=3,quiet",
    "obabel-pdbqt",
    "obabel-cml",
];

/// Stands between blocks.
const SEPARATOR: u8 = 0x1e;

/// Joins that refuse a run of one batch which is not as the tool writes it, or number its parts anew.
fn is_identity(spec: &str) -> bool {
    !spec.starts_with("obabel-")
}

fuzz_target!(|data: &[u8]| {
    let Some((&chosen, rest)) = data.split_first() else { return };
    let chosen = usize::from(chosen) % (SPECS.len() + CHANGING.len());
    let (spec, is_changing) = match chosen.checked_sub(SPECS.len()) {
        Some(at) => (CHANGING[at], true),
        None => (SPECS[chosen], false),
    };
    let blocks: Vec<(u64, &[u8])> = rest
        .split(|byte| *byte == SEPARATOR)
        .map(|block| block.split_first().map_or((1, &[][..]), |(n, block)| (u64::from(n & 15), block)))
        .collect();
    let joined = join_blocks(spec, &blocks, 1 << 16);
    assert_eq!(join_blocks(spec, &blocks, 3), joined, "{spec}: read in bites");
    let (n_records, block) = blocks[0];
    let _ = measure(spec, u64::MAX / 2, n_records, &mut &*block);
    // A block of no record is the only one.
    let apart = if blocks.iter().all(|(n_records, _)| *n_records > 0) { join_apart(spec, &blocks) } else { None };
    if chosen == 0 && blocks.len() == 2 {
        let _ = fragment::patch("hmmer-report", &mut &*block, &mut &*blocks[1].1, &mut Vec::new());
    }
    let Ok(joined) = joined else { return };
    if let Some(apart) = apart {
        assert!(apart == joined, "{spec}: joined by several processes, {} became {}", show(&joined), show(&apart));
    }
    if is_changing {
        return;
    }
    if blocks.len() == 1 && is_identity(spec) {
        assert!(joined == block, "{spec}: {} alone became {}", show(block), show(&joined));
    }
    // Quotes of one block alone say whether a blank line of the next is in a field.
    let has_open_quote = |block: &[u8]| block.iter().filter(|byte| **byte == b'"').count() % 2 == 1;
    if spec.starts_with("csv") && blocks.iter().any(|(_, block)| has_open_quote(block)) {
        return;
    }
    // What the first batches are joined to is the output of a run on their records.
    for n in 1..blocks.len() {
        if blocks.iter().any(|(n_records, _)| *n_records == 0) {
            return;
        }
        let first = join_blocks(spec, &blocks[..n], 1 << 16).expect("a part of what can be joined can be joined");
        let n_records = blocks[..n].iter().map(|(n_records, _)| n_records).sum();
        let parts = [&[(n_records, &first[..])], &blocks[n..]].concat();
        let again = join_blocks(spec, &parts, 1 << 16);
        assert!(again.as_ref() == Ok(&joined), "{spec}: {} and {again:?}, with {n} first", show(&joined));
    }
});
