//! What a journal gives back after whatever happened to its file.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

const RUN: [u8; 16] = *b"0123456789abcdef";

#[derive(Debug, Clone)]
struct Work {
    first: u64,
    last: u64,
    quarantined: bool,
    blocks: Vec<(u16, Vec<u8>, Vec<u8>)>,
    synced: bool,
}

fn works() -> impl Strategy<Value = Vec<Work>> {
    let block = (0_u16..3, prop::collection::vec(any::<u8>(), 0..6), payload());
    let work = (1_u64..5, any::<bool>(), prop::collection::vec(block, 0..3), any::<bool>());
    prop::collection::vec(work, 0..6).prop_map(|works| {
        let mut first = 0;
        let mut done = vec![];
        for (length, quarantined, blocks, synced) in works {
            let blocks = if quarantined { vec![] } else { blocks };
            done.push(Work { first, last: first + length, quarantined, blocks, synced });
            first += length;
        }
        done
    })
}

/// Payloads that hold what could be taken for a frame, too.
fn payload() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        Just(b"MRF1MRF1\x01\0\0\0".to_vec()),
        Just([frame::FRAME_MAGIC.as_slice(), &[0; 60]].concat()),
    ]
}

fn source(folder: &Path, bytes: &[u8]) -> fs::File {
    let mut file = tempfile::tempfile_in(folder).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn append(journal: &mut Journal, folder: &Path, work: &Work) -> Result<TaskRef, JournalError> {
    let head = TaskHead {
        first: work.first,
        last: work.last,
        fragment: 0,
        attempt: 1,
        quarantined: work.quarantined,
        inputs: vec![InputDigest { bytes: work.last - work.first, crc32c: 7 }],
    };
    let mut blocks: Vec<_> = work
        .blocks
        .iter()
        .map(|(stream, name, bytes)| Source { stream: *stream, name: name.clone(), file: source(folder, bytes) })
        .collect();
    journal.append(&head, &mut blocks)
}

/// A journal with `works`, and for each the end of the file after it.
fn written(folder: &Path, works: &[Work]) -> (PathBuf, Vec<u64>) {
    let path = folder.join("journal.mrj");
    let _ = fs::remove_file(&path);
    let mut journal = Journal::create(&path, &RUN).unwrap();
    let mut ends = vec![];
    for work in works {
        append(&mut journal, folder, work).unwrap();
        ends.push(fs::metadata(&path).unwrap().len());
        if work.synced {
            let (_, end) = journal.sync_handle().unwrap();
            journal.synced_to(end);
        }
    }
    (path, ends)
}

/// Every task found is one that was committed, and gives back its bytes or an error.
fn check(path: &Path, found: &[TaskRef], works: &[Work]) {
    let reader = BlockReader::open(path).unwrap();
    for task in found {
        let work = works
            .iter()
            .find(|work| {
                (work.first, work.last, work.quarantined) == (task.first, task.last, task.quarantined)
                    && work.blocks.len() == task.blocks.len()
            })
            .expect("a task that nobody committed");
        for (block, (stream, name, bytes)) in task.blocks.iter().zip(&work.blocks) {
            assert_eq!((block.stream, &block.name), (*stream, name));
            let mut got = vec![];
            if reader.read(block).read_to_end(&mut got).is_ok() {
                assert_eq!(&got, bytes);
            }
        }
    }
}

/// Extents of length 0 are alike: only those with records are told apart.
fn extents(tasks: &[TaskRef]) -> Vec<(u64, u64)> {
    tasks.iter().map(|task| (task.first, task.last)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_journal_cut_anywhere_holds_all_that_was_committed_before_the_cut(works in works()) {
        let folder = TempDir::new().unwrap();
        let (path, ends) = written(folder.path(), &works);
        let whole = fs::read(&path).unwrap();
        let begin = ends.len().checked_sub(2).map_or(frame::FILE_HEADER, |k| ends[k] as usize);
        for cut in begin..=whole.len() {
            fs::write(&path, &whole[..cut]).unwrap();
            let (mut journal, found) = Journal::open(&path, &RUN).unwrap();
            let n = ends.iter().filter(|end| **end <= cut as u64).count();
            prop_assert_eq!(extents(&found.tasks), works[..n].iter().map(|w| (w.first, w.last)).collect::<Vec<_>>());
            prop_assert!(found.damage.is_empty(), "a torn tail is no damage: {:?}", found.damage);
            check(&path, &found.tasks, &works);
            // Appending goes on, and what is appended is found beside what was there.
            let more = Work { first: 1000, last: 1001, quarantined: false, blocks: vec![(0, vec![], b"more".to_vec())], synced: false };
            append(&mut journal, folder.path(), &more).unwrap();
            let again = scan(&path, true).unwrap();
            prop_assert_eq!(again.tasks.len(), n + 1);
            prop_assert!(again.damage.is_empty() && again.torn == 0);
            let all = [works.as_slice(), &[more]].concat();
            check(&path, &again.tasks, &all);
        }
    }

    #[test]
    fn a_flipped_bit_costs_at_most_the_task_it_is_in_and_is_named(
        works in works(), places in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 30),
    ) {
        let folder = TempDir::new().unwrap();
        let (path, ends) = written(folder.path(), &works);
        let whole = fs::read(&path).unwrap();
        for (place, bit) in places {
            let at = place.index(whole.len());
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            let Ok((mut journal, found)) = Journal::open(&path, &RUN) else {
                prop_assert!(at < frame::FILE_HEADER, "only a damaged header makes a journal unreadable");
                continue;
            };
            check(&path, &found.tasks, &works);
            prop_assert!(found.tasks.len() + 1 >= works.len(), "one bit costs more than one task");
            if found.tasks.len() < works.len() {
                let hit = ends.iter().position(|end| (at as u64) < *end).unwrap();
                let begin = if hit == 0 { frame::FILE_HEADER as u64 } else { ends[hit - 1] };
                // Named by a place in that task, unless it looks like a torn tail: then it is cut.
                let named = found.damage.iter().any(|place| (begin..ends[hit]).contains(&place.offset));
                prop_assert!(named || found.end <= at as u64, "damage at {} is not named: {:?}", at, found.damage);
            }
            append(&mut journal, folder.path(), &Work { first: 1000, last: 1001, quarantined: true, blocks: vec![], synced: false }).unwrap();
            prop_assert!(scan(&path, true).unwrap().tasks.iter().any(|task| task.first == 1000));
        }
    }

    #[test]
    fn any_bytes_at_all_are_read_without_a_panic(tail in prop::collection::vec(any::<u8>(), 0..400), works in works()) {
        let folder = TempDir::new().unwrap();
        let (path, _) = written(folder.path(), &works);
        fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&tail).unwrap();
        let (_, found) = Journal::open(&path, &RUN).unwrap();
        prop_assert_eq!(found.tasks.len(), works.len());
        check(&path, &found.tasks, &works);
    }
}

fn simple(first: u64, bytes: &[u8]) -> Work {
    Work { first, last: first + 1, quarantined: false, blocks: vec![(0, vec![], bytes.to_vec())], synced: false }
}

#[test]
fn a_hole_of_zeros_after_a_power_cut_is_passed_over_and_told_from_lost_promises() {
    let folder = TempDir::new().unwrap();
    let works = [Work { synced: true, ..simple(0, &[1; 5000]) }, simple(1, &[2; 5000]), simple(2, &[3; 5000])];
    let (path, ends) = written(folder.path(), &works);
    let whole = fs::read(&path).unwrap();
    let zeroed = |from: u64, to: u64| {
        let mut bytes = whole.clone();
        bytes[from as usize..to as usize].fill(0);
        fs::write(&path, bytes).unwrap();
        Journal::open(&path, &RUN).unwrap().1
    };
    // Pages of the second task never got to the disk, those of the third did: a crash explains it.
    let found = zeroed(ends[0] + 100, ends[1]);
    assert_eq!(extents(&found.tasks), [(0, 1), (2, 3)]);
    assert!(!found.damage.is_empty() && found.damage.iter().all(|place| !place.was_synced), "{:?}", found.damage);
    assert!(found.damage.iter().all(|place| (ends[0]..ends[1]).contains(&place.offset)));
    // The first was known to be on disk: no crash explains that.
    let found = zeroed(200, 300);
    assert_eq!(extents(&found.tasks), [(1, 2), (2, 3)]);
    assert!(found.damage.iter().any(|place| place.was_synced && place.offset < ends[0]), "{:?}", found.damage);
    // Nothing of the tail got there but its length.
    let found = zeroed(ends[0], whole.len() as u64);
    assert_eq!(extents(&found.tasks), [(0, 1)]);
    assert_eq!(found.end, ends[0]);
}

/// A journal of another run, with a task of one block, records that were given up, and a note of a sync.
fn foreign(folder: &Path) -> Vec<u8> {
    let path = folder.join("foreign.mrj");
    let mut journal = Journal::create(&path, &RUN).unwrap();
    append(&mut journal, folder, &simple(70, b"foreign")).unwrap();
    append(&mut journal, folder, &Work { quarantined: true, blocks: vec![], ..simple(80, b"") }).unwrap();
    journal.synced_to(journal.end());
    fs::read(path).unwrap()
}

#[test]
fn a_kill_within_a_block_that_holds_a_journal_finds_none_of_its_tasks() {
    let folder = TempDir::new().unwrap();
    let archive = [foreign(folder.path()), vec![7; 100]].concat();
    let (path, ends) = written(folder.path(), &[simple(0, b"first"), simple(1, &archive)]);
    let whole = fs::read(&path).unwrap();
    for cut in ends[0]..ends[1] {
        fs::write(&path, &whole[..cut as usize]).unwrap();
        let (_, found) = Journal::open(&path, &RUN).unwrap();
        assert_eq!(extents(&found.tasks), [(0, 1)], "cut at {cut}");
        assert!(found.damage.is_empty(), "cut at {cut}: {:?}", found.damage);
    }
}

#[test]
fn a_damaged_block_that_holds_a_journal_gives_none_of_its_tasks() {
    let folder = TempDir::new().unwrap();
    let given_up = Work { quarantined: true, blocks: vec![], ..simple(2, b"") };
    let works = [simple(0, b"first"), simple(1, &foreign(folder.path())), given_up, simple(3, b"last")];
    let (path, ends) = written(folder.path(), &works);
    let whole = fs::read(&path).unwrap();
    for at in ends[0]..ends[1] {
        let mut bytes = whole.clone();
        bytes[at as usize] ^= 1;
        fs::write(&path, bytes).unwrap();
        let (_, found) = Journal::open(&path, &RUN).unwrap();
        assert_eq!(extents(&found.tasks), [(0, 1), (2, 3), (3, 4)], "byte {at}");
        assert!(found.damage.iter().any(|place| (ends[0]..ends[1]).contains(&place.offset)), "byte {at}");
    }
}

#[test]
fn a_frame_that_fits_once_the_journal_has_grown_hides_no_task() {
    let folder = TempDir::new().unwrap();
    let (kind, name) = (frame::Kind::Block, vec![]);
    let head =
        frame::Head { kind, flags: 0, stream: 0, first: 7, last: 8, fragment: 0, attempt: 1, length: 3000, name };
    let inner = [head.encode(), vec![7; 20]].concat();
    let (path, ends) = written(folder.path(), &[simple(0, b"first"), simple(1, &inner), simple(2, b"last")]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[0] as usize] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (mut journal, found) = Journal::open(&path, &RUN).unwrap();
    assert_eq!(extents(&found.tasks), [(0, 1), (2, 3)]);
    append(&mut journal, folder.path(), &simple(3, &[9; 6000])).unwrap();
    let again = scan(&path, true).unwrap();
    assert_eq!((extents(&again.tasks), again.torn), (vec![(0, 1), (2, 3), (3, 4)], 0));
    assert_eq!(again.damage, found.damage);
}

#[test]
fn a_block_in_the_place_of_another_is_not_taken_for_it() {
    let folder = TempDir::new().unwrap();
    let (path, ends) = written(folder.path(), &[simple(0, b"same"), simple(1, b"size")]);
    let mut bytes = fs::read(&path).unwrap();
    let frame = frame::HEAD + 4 + frame::TRAILER;
    bytes.copy_within(frame::FILE_HEADER..frame::FILE_HEADER + frame, ends[0] as usize);
    fs::write(&path, bytes).unwrap();
    let (_, found) = Journal::open(&path, &RUN).unwrap();
    assert_eq!(extents(&found.tasks), [(0, 1)]);
    assert!(found.damage.iter().any(|place| place.problem.contains("a block of theirs is damaged")));
}

#[test]
fn a_damaged_frame_of_the_last_record_there_can_be_is_named() {
    let folder = TempDir::new().unwrap();
    let (path, _) = written(folder.path(), &[simple(0, b"first")]);
    let (first, last) = (u64::MAX, u64::MAX);
    for kind in [frame::Kind::Block, frame::Kind::Commit] {
        let head =
            frame::Head { kind, flags: 0, stream: 0, first, last, fragment: 0, attempt: 1, length: 0, name: vec![] };
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(&[head.encode(), vec![9; frame::TRAILER]].concat()).unwrap();
    }
    let (_, found) = Journal::open(&path, &RUN).unwrap();
    assert_eq!((extents(&found.tasks), found.damage.len()), (vec![(0, 1)], 2));
}

#[test]
fn no_space_in_the_middle_of_an_append_leaves_the_journal_as_it_was() {
    // The limit is of the whole process, so this happens in one of its own.
    if std::env::var_os("MILLRACE_FULL_DISK").is_none() {
        let ended = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::tests::no_space_in_the_middle_of_an_append_leaves_the_journal_as_it_was"])
            .env("MILLRACE_FULL_DISK", "1")
            .output()
            .unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
        return;
    }
    let folder = TempDir::new().unwrap();
    for bytes in [vec![5; 3000], vec![6; 600_000]] {
        let works = [simple(0, b"first")];
        let (path, ends) = written(folder.path(), &works);
        let (mut journal, _) = Journal::open(&path, &RUN).unwrap();
        for room in [0, 1, 47, 48, 100, 2999, 3052, 3060] {
            let file = source(folder.path(), &bytes);
            let head = TaskHead { first: 1, last: 2, fragment: 0, attempt: 1, quarantined: false, inputs: vec![] };
            limit(ends[0] + room, || {
                let error = journal.append(&head, &mut [Source { stream: 0, name: vec![], file }]).unwrap_err();
                let words = error.to_string();
                assert!(words.contains(&format!("{} bytes are needed", bytes.len())), "{words}");
                assert!(words.contains("journal.mrj"), "{words}");
                // A note of a sync that does not fit is no error, and moves nothing.
                if room < 50 {
                    journal.synced_to(ends[0]);
                }
            });
            assert_eq!(fs::metadata(&path).unwrap().len(), ends[0]);
        }
        append(&mut journal, folder.path(), &simple(1, &bytes)).unwrap();
        let found = scan(&path, true).unwrap();
        assert_eq!(extents(&found.tasks), [(0, 1), (1, 2)]);
        assert!(found.damage.is_empty() && found.torn == 0);
        check(&path, &found.tasks, &[works[0].clone(), simple(1, &bytes)]);
    }
}

/// Runs `work` while no file may grow beyond `bytes`.
fn limit(bytes: u64, work: impl FnOnce()) {
    // SAFETY: plain system calls with valid values, in a process that runs this one test.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let mut old: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut old);
        libc::setrlimit(libc::RLIMIT_FSIZE, &libc::rlimit { rlim_cur: bytes, ..old });
        work();
        libc::setrlimit(libc::RLIMIT_FSIZE, &old);
    }
}

#[test]
fn a_commit_holds_more_blocks_than_sixteen_bits_count() {
    let frames: Vec<u64> = (0..70_000).collect();
    assert_eq!(frame::decode_commit(&frame::encode_commit(&[], &frames)), Some((vec![], frames)));
}

#[test]
fn a_kill_before_the_header_is_on_disk_leaves_no_journal() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("journal.mrj");
    fs::write(folder.path().join("journal.mrj.new"), b"MRJ").unwrap();
    Journal::create(&path, &RUN).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(Journal::create(&path, &RUN).is_err(), "an existing journal is not overwritten");
}

#[test]
fn what_is_no_journal_or_another_runs_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let (path, _) = written(folder.path(), &[simple(0, b"x")]);
    assert!(matches!(Journal::open(&path, &[9; 16]), Err(JournalError::OtherRun(_))));
    let whole = fs::read(&path).unwrap();
    for (at, value) in [(0, b'X'), (8, 99), (20, 1)] {
        let mut bytes = whole.clone();
        bytes[at] = value;
        fs::write(&path, bytes).unwrap();
        let words = Journal::open(&path, &RUN).unwrap_err().to_string();
        assert!(words.contains("journal.mrj"), "{words}");
    }
    fs::write(&path, b"").unwrap();
    assert!(matches!(scan(&path, true), Err(JournalError::NotAJournal(_))));
}

#[test]
fn a_reader_sees_damage_that_came_after_the_scan() {
    let folder = TempDir::new().unwrap();
    let (path, _) = written(folder.path(), &[simple(0, &[7; 1000])]);
    let found = scan(&path, true).unwrap();
    let block = &found.tasks[0].blocks[0];
    let mut file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.seek(SeekFrom::Start(block.offset + 500)).unwrap();
    file.write_all(b"!").unwrap();
    let error = BlockReader::open(&path).unwrap().read(block).read_to_end(&mut vec![]).unwrap_err();
    assert!(error.to_string().contains(&format!("byte {}", block.offset)), "{error}");
}
