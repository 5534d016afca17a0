//! The journal: whatever happens to its file, it gives back what was committed or says what is damaged, and goes on.

#![no_main]

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use millrace_core::journal::{BlockReader, InputDigest, Journal, Source, TaskHead, TaskRef, forget_unsynced, scan};
use millrace_fuzz::make_folder;

const RUN: [u8; 16] = *b"0123456789abcdef";

/// First record of the task that was given up in the journal of another run.
const FOREIGN: u64 = 8_000_000;

/// Bytes before the first frame, and those of a frame before its name.
const FILE_HEADER: u64 = 32;
const FRAME_HEAD: u64 = 48;

#[derive(Arbitrary, Debug)]
struct Case {
    works: Vec<Work>,
    damages: Vec<Change>,
    /// A frame with right checksums that no journal has written.
    forged: Option<Forged>,
    forget: bool,
}

#[derive(Arbitrary, Debug, Clone)]
struct Work {
    n_records: u8,
    fragment: bool,
    quarantined: bool,
    n_inputs: u8,
    blocks: Vec<(u8, String, Payload)>,
    synced: bool,
}

#[derive(Arbitrary, Debug, Clone)]
enum Payload {
    Bytes(Vec<u8>),
    Repeated(u8, u16),
    /// Longer than the buffer of the writer.
    Long(u8, u8),
    /// The output of a tool that archives another journal, or a part of it.
    Journal(u16),
}

/// What happens to the file.
#[derive(Arbitrary, Debug)]
enum Change {
    Flip(Place, u8),
    Set(Place, Vec<u8>),
    Zero(Place, u16),
    Cut(Place),
    /// A write that went to another place.
    Copy(Place, Place, u16),
    /// A whole frame in the place of another one.
    CopyFrame(u8, u8),
    Insert(Place, Vec<u8>),
    Remove(Place, u16),
    Append(Vec<u8>),
}

/// A byte of the file, counted from the begin of one of its frames.
#[derive(Arbitrary, Debug, Clone, Copy)]
struct Place {
    frame: u8,
    offset: u16,
}

#[derive(Arbitrary, Debug)]
struct Forged {
    place: Place,
    insert: bool,
    kind: u8,
    flags: u8,
    stream: u16,
    first: u64,
    last: u64,
    fragment: u32,
    length: Option<u64>,
    name: Vec<u8>,
    payload: Vec<u8>,
}

impl Forged {
    /// The frame as bytes; `length` may be another one than that of the payload.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = b"MRF1".to_vec();
        bytes.extend([self.kind, self.flags]);
        bytes.extend(self.stream.to_le_bytes());
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.last.to_le_bytes());
        bytes.extend(self.fragment.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(self.length.unwrap_or(self.payload.len() as u64).to_le_bytes());
        bytes.extend((self.name.len() as u16).to_le_bytes());
        bytes.extend([0, 0]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes), &self.name);
        bytes.extend(crc.to_le_bytes());
        bytes.extend(&self.name);
        bytes.extend(&self.payload);
        bytes.extend(crc32c::crc32c(&self.payload).to_le_bytes());
        bytes
    }
}

/// One block: stream, name, payload.
type Block = (u16, Vec<u8>, Vec<u8>);

/// A task as it was committed.
#[derive(Debug, Clone, PartialEq)]
struct Committed {
    quarantined: bool,
    inputs: Vec<InputDigest>,
    blocks: Vec<Block>,
    /// Where its frames are in the file, and the last of them, its commit.
    extent: Range<u64>,
    commit: Range<u64>,
}

/// First and last record and fragment, which no two tasks of a case share.
type Key = (u64, u64, u32);

/// A journal of another run: a task with a block, one that was given up, and a note of a sync.
fn foreign() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let folder = make_folder();
        let path = folder.path().join("foreign.mrj");
        let mut journal = Journal::create(&path, b"another run's id").expect("the folder can be written");
        let head = |first, quarantined| TaskHead {
            first,
            last: first + 9,
            fragment: 0,
            attempt: 1,
            quarantined,
            inputs: vec![],
        };
        append(&mut journal, folder.path(), &head(FOREIGN - 10, false), &[(0, vec![], b"foreign".to_vec())]);
        append(&mut journal, folder.path(), &head(FOREIGN, true), &[]);
        journal.synced_to(1 << 40);
        fs::read(path).expect("the journal exists")
    })
}

impl Payload {
    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Repeated(byte, n) => vec![*byte; usize::from(*n)],
            Self::Long(byte, n) => vec![*byte; (256 << 10) + usize::from(*n)],
            Self::Journal(end) => foreign()[..usize::from(*end).min(foreign().len())].to_vec(),
        }
    }
}

fn append(journal: &mut Journal, folder: &Path, head: &TaskHead, blocks: &[Block]) -> TaskRef {
    let make_source = |(stream, name, bytes): &Block| {
        let mut file = tempfile::tempfile_in(folder).expect("the folder can be written");
        file.write_all(bytes).expect("the folder can be written");
        Source { stream: *stream, name: name.clone(), file }
    };
    journal.append(head, &mut blocks.iter().map(make_source).collect::<Vec<_>>()).expect("the journal can be written")
}

/// Writes the journal of a case; returns its tasks, and where its frames begin.
fn write_journal(path: &Path, folder: &Path, works: &[Work]) -> (HashMap<Key, Committed>, Vec<u64>) {
    let mut journal = Journal::create(path, &RUN).expect("the folder can be written");
    let (mut tasks, mut frames, mut first) = (HashMap::new(), vec![0, FILE_HEADER], 0);
    for work in works {
        let (start, last, fragment) = (journal.end(), first + 1 + u64::from(work.n_records), u32::from(work.fragment));
        let inputs: Vec<_> =
            (0..work.n_inputs % 4).map(|n| InputDigest { bytes: u64::from(n), crc32c: last as u32 }).collect();
        let blocks: Vec<Block> = if work.quarantined { &[][..] } else { &work.blocks }
            .iter()
            .map(|(stream, name, payload)| (u16::from(*stream), name.clone().into_bytes(), payload.to_bytes()))
            .collect();
        let head =
            TaskHead { first, last, fragment, attempt: 1, quarantined: work.quarantined, inputs: inputs.clone() };
        let appended = append(&mut journal, folder, &head, &blocks);
        frames.extend(appended.blocks.iter().map(|block| block.offset - FRAME_HEAD - block.name.len() as u64));
        frames.extend(appended.blocks.last().map(|block| block.offset + block.length + 4));
        let commit = appended.blocks.last().map_or(start, |block| block.offset + block.length + 4)..journal.end();
        let extent = start..journal.end();
        let committed = Committed { quarantined: work.quarantined, inputs, blocks, extent, commit };
        tasks.insert((first, last, fragment), committed);
        frames.push(journal.end());
        if work.synced {
            journal.synced_to(journal.end());
            frames.push(journal.end());
        }
        first = last;
    }
    (tasks, frames)
}

/// A file that changes, and what of it changed in place.
struct Damaged<'a> {
    bytes: Vec<u8>,
    frames: &'a [u64],
    touched: Vec<Range<u64>>,
    /// Bytes stand at other places than before.
    moved: bool,
    /// Whole frames may stand in the place of others: the journal is one that could have been written so.
    copied: bool,
}

impl Damaged<'_> {
    fn find(&self, place: Place) -> usize {
        let frame = self.frames[usize::from(place.frame) % self.frames.len()];
        (frame as usize + usize::from(place.offset)).min(self.bytes.len())
    }

    fn write(&mut self, at: usize, new: &[u8]) {
        let n = new.len().min(self.bytes.len() - at);
        self.bytes[at..at + n].copy_from_slice(&new[..n]);
        self.touched.push(at as u64..(at + n) as u64);
    }

    fn read(&self, at: usize, n: u16) -> Vec<u8> {
        self.bytes[at..(at + usize::from(n)).min(self.bytes.len())].to_vec()
    }

    fn cut(&mut self, at: usize) {
        self.touched.push(at as u64..u64::MAX);
        self.bytes.truncate(at);
    }

    fn change(&mut self, change: &Change) {
        match change {
            Change::Flip(place, bit) => {
                let at = self.find(*place);
                if let Some(byte) = self.bytes.get(at) {
                    self.write(at, &[byte ^ (1 << (bit % 8))]);
                }
            }
            Change::Set(place, bytes) => self.write(self.find(*place), bytes),
            Change::Zero(place, n) => self.write(self.find(*place), &vec![0; usize::from(*n)]),
            Change::Cut(place) => self.cut(self.find(*place)),
            Change::Copy(from, to, n) => {
                self.copied = true;
                self.write(self.find(*to), &self.read(self.find(*from), *n));
            }
            Change::CopyFrame(from, to) => {
                let frame = |n: u8| self.find(Place { frame: n, offset: 0 });
                let (begin, end, dest) = (frame(*from), frame(from.wrapping_add(1)), frame(*to));
                self.copied = true;
                let copied = self.bytes[begin..end.max(begin)].to_vec();
                self.write(dest, &copied);
            }
            Change::Insert(place, bytes) => {
                let at = self.find(*place);
                self.moved = true;
                self.bytes.splice(at..at, bytes.iter().copied());
            }
            Change::Remove(place, n) => {
                let at = self.find(*place);
                let end = (at + usize::from(*n)).min(self.bytes.len());
                self.moved = true;
                self.bytes.drain(at..end);
            }
            Change::Append(bytes) => self.bytes.extend(bytes),
        }
    }
}

/// Whether a task is one that was committed, with the same bytes or an error in their place.
fn check_task(reader: &BlockReader, key: Key, task: &TaskRef, committed: &HashMap<Key, Committed>) {
    let expected = committed.get(&key).unwrap_or_else(|| panic!("nobody committed the task {key:?}"));
    assert_eq!((task.quarantined, &task.inputs), (expected.quarantined, &expected.inputs));
    assert_eq!(task.blocks.len(), expected.blocks.len());
    for (block, (stream, name, bytes)) in task.blocks.iter().zip(&expected.blocks) {
        assert_eq!((block.stream, &block.name), (*stream, name));
        let mut found = Vec::new();
        reader.read(block).read_to_end(&mut found).expect("the scan has read the block");
        assert!(found == *bytes, "another block of task {key:?}");
    }
}

/// Whether the blocks of a task are ones that were committed, of whatever task.
fn check_blocks(reader: &BlockReader, task: &TaskRef, committed: &HashMap<Key, Committed>) {
    for block in &task.blocks {
        let mut found = Vec::new();
        reader.read(block).read_to_end(&mut found).expect("the scan has read the block");
        let mut known = committed.values().flat_map(|task| &task.blocks);
        let is_known =
            known.any(|(stream, name, bytes)| (block.stream, &block.name) == (*stream, name) && found == *bytes);
        assert!(is_known || task.first == FOREIGN - 10, "nobody committed {block:?}");
    }
}

fn key(task: &TaskRef) -> Key {
    (task.first, task.last, task.fragment)
}

/// Opens the journal again and again, writes to it, and compares.
fn check_recovery(path: &Path, folder: &Path, committed: &HashMap<Key, Committed>, damaged: &Damaged<'_>, case: &Case) {
    let Ok((mut journal, found)) = Journal::open(path, &RUN) else {
        let is_header = damaged.moved || damaged.touched.iter().any(|range| range.start < FILE_HEADER);
        assert!(is_header || case.forged.is_some(), "only a damaged header makes a journal unreadable");
        return;
    };
    if case.forged.is_none() {
        let reader = BlockReader::open(path).expect("the journal exists");
        // Where a block and its commit are damaged, nothing tells that a commit in its payload is another journal's.
        let is_touched = |commit: &Range<u64>| {
            damaged.touched.iter().any(|range| range.start < commit.end && range.end > commit.start)
        };
        let is_unknown = damaged.moved || committed.values().any(|task| is_touched(&task.commit));
        for task in found.tasks.iter().filter(|task| !(is_unknown && task.first == FOREIGN && task.quarantined)) {
            if damaged.copied {
                check_blocks(&reader, task, committed);
            } else {
                check_task(&reader, key(task), task, committed);
            }
        }
        for (wanted, task) in committed {
            let is_touched = |range: &Range<u64>| range.start < task.extent.end && range.end > task.extent.start;
            let is_found = found.tasks.iter().any(|each| key(each) == *wanted);
            if is_found {
                continue;
            }
            // A task is lost only by damage to itself, or by the commit of another that stands elsewhere; it is named if it is not
            // cut off as a torn end.
            assert!(
                damaged.moved || damaged.copied || damaged.touched.iter().any(is_touched),
                "{wanted:?} is lost: {found:?}"
            );
            // Neighbours that are damaged are one place, from the first of them.
            let is_between = |offset: u64, (other, between): (&Key, &Committed)| {
                (offset..task.extent.start).contains(&between.extent.start)
                    && found.tasks.iter().any(|each| key(each) == *other)
            };
            let is_named = found.damage.iter().any(|place| {
                place.offset < task.extent.end && !committed.iter().any(|each| is_between(place.offset, each))
            });
            assert!(
                damaged.moved || damaged.copied || is_named || found.end < task.extent.end,
                "{wanted:?} is lost: {found:?}"
            );
        }
    }
    // Writing goes on after recovery.
    let head = TaskHead { first: 1 << 50, last: 1 << 51, fragment: 0, attempt: 2, quarantined: false, inputs: vec![] };
    let more = append(&mut journal, folder, &head, &[(3, b"name".to_vec(), b"more".to_vec())]);
    let again = scan(path, true).expect("the journal can be read");
    let expected: Vec<_> = found.tasks.iter().chain([&more]).cloned().collect();
    assert_eq!((again.tasks, again.torn, again.end), (expected, 0, journal.end()));
    drop(journal);
    // Where bytes have moved, or frames stand in the place of others, a note of a sync may name the middle of a frame.
    if case.forget && case.forged.is_none() && !damaged.moved && !damaged.copied {
        forget_unsynced(path).expect("the journal can be cut");
        let sure = scan(path, true).expect("the journal can be read");
        assert!(
            sure.tasks.len() <= found.tasks.len() + 1
                && sure.tasks[..] == [&found.tasks[..], &[more]].concat()[..sure.tasks.len()]
        );
        assert_eq!(sure.torn, 0);
    }
}

fuzz_target!(|case: Case| {
    let folder = make_folder();
    let path = folder.path().join("journal.mrj");
    let (committed, frames) = write_journal(&path, folder.path(), &case.works);
    let bytes = fs::read(&path).expect("the journal exists");
    let mut damaged = Damaged { bytes, frames: &frames, touched: vec![], moved: false, copied: false };
    case.damages.iter().for_each(|change| damaged.change(change));
    if let Some(forged) = &case.forged {
        let (at, frame) = (damaged.find(forged.place), forged.encode());
        let end = if forged.insert { at } else { (at + frame.len()).min(damaged.bytes.len()) };
        damaged.bytes.splice(at..end, frame);
    }
    fs::write(&path, &damaged.bytes).expect("the folder can be written");
    check_recovery(&path, folder.path(), &committed, &damaged, &case);
});
