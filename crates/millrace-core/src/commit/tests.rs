use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::candidates::Within;
use crate::journal::{Journal, Source, TaskHead, TaskRef, scan};
use crate::slot::{Failure, Sink, Task};

fn head(first: u64, last: u64, fragment: u32) -> TaskHead {
    TaskHead { first, last, fragment, attempt: 1, quarantined: false, inputs: vec![] }
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn create(folder: &Path) -> (Arc<SharedJournal>, PathBuf) {
    let path = folder.join("journal");
    let journal = Journal::create(&path, &[7; 16]).unwrap();
    (Arc::new(SharedJournal::new(journal, path.clone().into())), path)
}

/// A journal with one block for each of `texts`, a record each.
fn stored(folder: &Path, texts: &[&[u8]]) -> Vec<StoredBlock> {
    let (journal, path) = create(folder);
    let path: Arc<Path> = path.into();
    let append = |(k, text): (u64, &&[u8])| {
        let mut blocks = [Source { stream: 0, name: vec![], file: file_of(text) }];
        let task = journal.append(&head(k, k + 1, 0), &mut blocks).unwrap();
        StoredBlock { block: task.blocks[0].clone(), journal: path.clone() }
    };
    (0..).zip(texts).map(append).collect()
}

#[test]
fn who_asks_for_the_end_does_not_wait_for_who_appends() {
    let folder = TempDir::new().unwrap();
    let (journal, _) = create(folder.path());
    let empty = journal.end();
    let mut blocks = [Source { stream: 0, name: vec![], file: file_of(b"text") }];
    let (tell, told) = std::sync::mpsc::channel();
    let asks = journal.clone();
    journal.alone(|appending| {
        appending.append(&head(0, 1, 0), &mut blocks).unwrap();
        std::thread::spawn(move || tell.send((asks.end(), asks.unsynced())));
        let now = told.recv_timeout(Duration::from_secs(60)).expect("it waited");
        assert_eq!(now, (empty, 0), "as before the task, of which it may not know");
    });
    let end = journal.end();
    assert!(end > empty && journal.unsynced() == end - empty);
    journal.sync(Some(end)).unwrap();
    assert!(journal.unsynced() == 0 && journal.end() > end, "the note that it is synced is no news");
}

#[test]
fn a_journal_that_looks_too_short_is_opened_anew() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"one", b"two"]);
    let path = &blocks[0].journal;
    // As a client of a network filesystem, which still has the file of an earlier time.
    let whole = fs::read(path).unwrap();
    let earlier = usize::try_from(blocks[0].block.offset).unwrap() + 3;
    fs::write(folder.path().join("earlier"), &whole[..earlier]).unwrap();
    fs::rename(path, folder.path().join("now")).unwrap();
    fs::rename(folder.path().join("earlier"), path).unwrap();
    let mut journals = Journals::default();
    assert_eq!(journals.holding(&blocks[0]).unwrap().size(), earlier as u64);
    fs::rename(folder.path().join("now"), path).unwrap();
    let mut text = String::new();
    let reader = journals.holding(&blocks[1]).unwrap();
    io::Read::read_to_string(&mut reader.read(&blocks[1].block), &mut text).unwrap();
    assert_eq!(text, "two");
}

#[test]
fn of_many_journals_the_latest_stay_open_and_others_are_opened_again() {
    let folder = TempDir::new().unwrap();
    let text = |k: usize| format!("text of node {k}");
    let block_of_node = |k: usize| {
        let own = folder.path().join(k.to_string());
        fs::create_dir(&own).unwrap();
        stored(&own, &[text(k).as_bytes()]).remove(0)
    };
    let blocks: Vec<_> = (0..journals::MOST_OPEN + 3).map(block_of_node).collect();
    let open = || {
        let paths = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|each| fs::read_link(each.path()).ok());
        paths.filter(|path| path.starts_with(folder.path())).collect::<Vec<_>>()
    };
    let mut journals = Journals::default();
    for (k, stored) in blocks.iter().enumerate().chain(blocks.iter().enumerate()) {
        for (k, stored) in [(k, stored), (0, &blocks[0])] {
            let mut found = String::new();
            io::Read::read_to_string(&mut journals.holding(stored).unwrap().read(&stored.block), &mut found).unwrap();
            assert_eq!(found, text(k));
        }
    }
    let open = open();
    assert_eq!(open.len(), journals::MOST_OPEN);
    assert!(open.contains(&blocks[0].journal.to_path_buf()), "it was asked for all the time");
    assert!(!open.contains(&blocks[1].journal.to_path_buf()));
}

#[test]
fn a_stream_is_written_over_what_is_there_and_cut_to_its_end() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"h\na\n", b"h\nb\n"]);
    let out = folder.path().join("out");
    fs::write(&out, "what an earlier run has left, which is longer").unwrap();
    let mut writer = StreamWriter::over("header", out.clone(), true).unwrap();
    blocks.iter().for_each(|block| writer.append(1, block).unwrap());
    assert_eq!(writer.finish().unwrap(), 6);
    assert_eq!(fs::read(&out).unwrap(), b"h\na\nb\n");
    assert_eq!(writer.changed().unwrap(), "");
    let (length, crc32c) = (6, crc32c::crc32c(b"h\na\nb\n"));
    let numbered: Vec<_> = blocks.iter().map(|block| (1, block.clone())).collect();
    let excerpt = joined("header", &numbered, &[], 3).unwrap();
    assert_eq!((excerpt.bytes.as_slice(), excerpt.length, excerpt.crc32c), (&b"h\na"[..], length, crc32c));
    assert_eq!(joined("header", &numbered, &["^a$\n".to_owned()], 99).unwrap().bytes, b"h\nb\n");
}

#[test]
fn it_is_told_what_somebody_else_has_made_of_the_file() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"some bytes\n"]);
    let after = |name: &str, harm: &dyn Fn(&Path)| {
        let out = folder.path().join(name);
        let mut writer = StreamWriter::over("concat", out.clone(), false).unwrap();
        writer.append(1, &blocks[0]).unwrap();
        writer.finish().unwrap();
        harm(&out);
        writer.changed().unwrap()
    };
    assert_eq!(after("same", &|_| ()), "");
    assert_eq!(after("gone", &|out| fs::remove_file(out).unwrap()), "is gone");
    let other = folder.path().join("other");
    fs::write(&other, "some bytes\n").unwrap();
    assert_eq!(after("other-file", &|out| fs::rename(&other, out).unwrap()), "is another file now");
    assert_eq!(after("written", &|out| fs::write(out, "SOME bytes\n").unwrap()), "has been written by somebody else");
    assert_eq!(after("longer", &|out| fs::write(out, "some bytes\n+").unwrap()), "has been written by somebody else");
}

#[test]
fn parts_are_written_at_their_places_as_long_as_that_is_allowed() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"aa", b"bb", b"c"]);
    let out = folder.path().join("out");
    fs::write(&out, ".........").unwrap();
    let writer = PartWriter::open(out.clone(), "concat".to_owned()).unwrap();
    let pieces: Vec<_> = blocks.iter().map(unchanged).collect();
    writer.write([(1, &pieces[0]), (3, &pieces[1])].into_iter()).unwrap();
    let gathered = writer.gather([(7, &pieces[2])].into_iter()).unwrap();
    assert_eq!((fs::read(&out).unwrap(), writer.unsynced()), (b".aabb....".to_vec(), 4));
    writer.write_gathered(&gathered).unwrap();
    assert_eq!(fs::read(&out).unwrap(), b".aabb..c.");
    writer.sync().unwrap();
    assert_eq!(writer.unsynced(), 0);
    writer.allow(Duration::ZERO);
    std::thread::sleep(Duration::from_millis(1));
    let refused = writer.write_gathered(&gathered).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
    assert!(refused.to_string().ends_with("out: the coordinator is silent: nothing more is written"), "{refused}");
}

/// A block that is copied as it is.
fn unchanged(block: &StoredBlock) -> OutputPiece {
    OutputPiece { stored: block.clone(), n_records: 1, before: None, length: block.block.length }
}

/// Blocks of one record each, committed by a sink that describes them.
fn committed(folder: &Path, join: &str, texts: &[&str]) -> Vec<StoredBlock> {
    let (sink, path) = sink(folder, join);
    let path: Arc<Path> = path.into();
    let commit = |(k, text): (u64, &&str)| {
        let task = commit(&sink, plain(head(k, k + 1, 0)), text.as_bytes()).unwrap();
        StoredBlock { block: task.blocks[0].clone(), journal: path.clone() }
    };
    (0..).zip(texts).map(commit).collect()
}

#[test]
fn blocks_are_joined_where_they_belong_whoever_writes_first() {
    let folder = TempDir::new().unwrap();
    let blocks = committed(folder.path(), "header\nfooter", &["h\na\nf\n", "h\nbb\nf\n", "h\nccc\nf\n"]);
    let mut layout = OutputLayout::new("header\nfooter").unwrap().unwrap();
    let mut at = 0;
    let mut pieces = vec![];
    for stored in &blocks {
        // What the block's own process said is enough: the journal is not read.
        let mut gone = stored.clone();
        gone.journal = Path::new("/nowhere").into();
        let piece = layout.place(1, &gone).unwrap();
        pieces.push((at, OutputPiece { stored: stored.clone(), ..piece.clone() }));
        at += piece.length;
    }
    let out = folder.path().join("out");
    fs::write(&out, "").unwrap();
    let writer = PartWriter::open(out.clone(), "header\nfooter".to_owned()).unwrap();
    for (at, piece) in pieces.iter().rev() {
        writer.write([(*at, piece)].into_iter()).unwrap();
    }
    assert_eq!(fs::read(&out).unwrap(), b"h\na\nbb\nccc\n");
    assert_eq!(pieces[1].1.excerpt("header\nfooter", 2).unwrap().bytes, b"bb");
    let wrong = OutputPiece { length: 2, ..pieces[1].1.clone() };
    let error = writer.write([(4, &wrong)].into_iter()).unwrap_err();
    assert!(error.to_string().ends_with("2 bytes of the output were expected of a block, and 3 came"), "{error}");
    let other = committed(&sub_folder(folder.path()), "header\nfooter", &["H\na\nf\n"]);
    let mut layout = OutputLayout::new("header\nfooter").unwrap().unwrap();
    layout.place(1, &blocks[0]).unwrap();
    let refused = layout.place(1, &other[0]).unwrap_err().to_string();
    assert_eq!(refused, "cannot join text output: the header differs between batches at its line 1: 'h' and 'H'");
}

#[test]
fn a_block_of_an_older_journal_is_measured_when_it_is_placed() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"h\na\n", b"h\nbb\n"]);
    let mut layout = OutputLayout::new("header").unwrap().unwrap();
    let lengths: Vec<_> = blocks.iter().map(|block| layout.place(1, block).unwrap().length).collect();
    assert_eq!((lengths, layout.end().unwrap()), (vec![4, 3], vec![]));
    assert!(OutputLayout::new("prodigal:gff").unwrap().is_none(), "one joiner must see all");
}

fn sub_folder(folder: &Path) -> PathBuf {
    let path = folder.join("other");
    fs::create_dir(&path).unwrap();
    path
}

fn blocks_of(folder: &Path, sizes: &[usize]) -> (Vec<StoredBlock>, Vec<u8>) {
    let texts: Vec<_> = (b'a'..=b'z').cycle().zip(sizes).map(|(letter, &size)| vec![letter; size]).collect();
    (stored(folder, &texts.iter().map(Vec::as_slice).collect::<Vec<_>>()), texts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the sizes of the blocks and where they begin: few writes, and all but the first at multiples of 1 MiB.
    #[test]
    fn what_is_written_reaches_from_one_multiple_of_a_mebibyte_to_the_next(
        sizes in prop::collection::vec(prop_oneof![0_usize..99, 0_usize..3_000_000, Just(1 << 20)], 1..6),
        begin in prop_oneof![Just(0_u64), 0_u64..5_000_000],
    ) {
        let folder = TempDir::new().unwrap();
        let (blocks, bytes) = blocks_of(folder.path(), &sizes);
        let mut writes = vec![];
        let mut file = vec![0; size_of(begin)];
        let mut out = aligned::Aligned::new(|piece: &[u8], at: u64| {
            assert_eq!(file.len() as u64, at);
            file.extend_from_slice(piece);
            writes.push((at, at + piece.len() as u64));
            Ok(())
        }, u64::MAX);
        let mut journals = Journals::default();
        let mut at = begin;
        for stored in &blocks {
            out.go_to(at).unwrap();
            out.take(journals.holding(stored).unwrap().read(&stored.block)).unwrap();
            at += stored.block.length;
        }
        io::Write::flush(&mut out).unwrap();
        prop_assert!(file[size_of(begin)..] == bytes);
        prop_assert!(writes.iter().skip(1).all(|(from, _)| from % (1 << 20) == 0), "{writes:?}");
        prop_assert!(writes.iter().all(|(from, to)| from / (1 << 20) == (to - 1) / (1 << 20)), "{writes:?}");
    }
}

fn size_of(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

#[test]
fn blocks_of_any_size_are_files_of_their_own() {
    let folder = TempDir::new().unwrap();
    let sizes = [0, 1, 4095, 1 << 20, (1 << 20) + 1, 3_000_000];
    for (block, &size) in blocks_of(folder.path(), &sizes).0.iter().zip(&sizes) {
        let path = folder.path().join(size.to_string());
        fs::write(&path, "what an earlier run has left").unwrap();
        assert_eq!(extract(block, &path).unwrap(), size as u64);
        let found = fs::read(&path).unwrap();
        assert!(found.len() == size && found.iter().all(|each| found[0] == *each), "{size}");
    }
}

#[test]
fn bytes_that_are_not_what_was_committed_are_not_written() {
    let folder = TempDir::new().unwrap();
    let blocks = stored(folder.path(), &[b"right"]);
    let mut bytes = fs::read(&blocks[0].journal).unwrap();
    bytes[usize::try_from(blocks[0].block.offset).unwrap()] ^= 1;
    fs::write(&blocks[0].journal, bytes).unwrap();
    let out = folder.path().join("out");
    fs::write(&out, "").unwrap();
    let writer = PartWriter::open(out.clone(), "concat".to_owned()).unwrap();
    let error = writer.write([(0, &unchanged(&blocks[0]))].into_iter()).unwrap_err();
    assert!(error.to_string().ends_with("the block's checksum is wrong"), "{error}");
    assert_eq!(fs::read(&out).unwrap(), b"");
    assert!(extract(&blocks[0], &folder.path().join("block")).is_err());
}

/// A sink of one stream, with the journal that it commits to.
fn sink(folder: &Path, join: &str) -> (JournalSink, PathBuf) {
    let (journal, path) = create(folder);
    let streams = vec![Stream { name: "hits.tsv".into(), join: join.into(), volatile: vec![] }];
    let said = ["^Warning: lost.*$".to_owned()];
    (JournalSink::new(journal, streams, r"^(\d+) done$", &said).unwrap(), path)
}

fn task() -> Task {
    Task {
        id: 1,
        exe: None,
        argv: vec![],
        placements: vec![],
        outputs: vec![],
        substitutions: vec![],
        timeout: None,
        cpu_limit: None,
        alone: false,
        warm: false,
        own_folder: None,
    }
}

fn commit(sink: &JournalSink, purpose: Purpose, text: &[u8]) -> Result<TaskRef, Failure> {
    sink.expect(1, purpose);
    sink.commit(&task(), vec![(0, vec![], file_of(text))])
}

fn plain(head: TaskHead) -> Purpose {
    Purpose { head, patches: vec![], within: None }
}

#[test]
fn what_cannot_be_joined_is_not_committed_but_for_candidates() {
    let folder = TempDir::new().unwrap();
    let (sink, path) = sink(folder.path(), "blast-xml");
    let Err(Failure::Shapeless(why)) = commit(&sink, plain(head(0, 2, 0)), b"no XML\n") else { panic!("committed") };
    assert!(why.starts_with("hits.tsv is not whole "), "{why}");
    let Err(Failure::Shapeless(why)) = commit(&sink, plain(head(0, 2, 0)), b"") else { panic!("committed") };
    assert_eq!(why, "it wrote nothing to hits.tsv");
    assert!(commit(&sink, plain(head(0, 2, 3)), b"a list of hits").is_ok());
    assert!(sink.commit(&task(), vec![]).is_err(), "nobody expects it");
    let found = scan(&path, true).unwrap();
    assert_eq!(found.tasks.iter().map(|task| task.fragment).collect::<Vec<_>>(), [3]);
}

#[test]
fn rows_of_another_slice_are_not_committed() {
    let folder = TempDir::new().unwrap();
    let (sink, path) = sink(folder.path(), "concat");
    let within = |lowest, highest| Purpose {
        within: Some(Within { subject: 1, bits: 2, evalue: None, lowest, highest }),
        ..plain(head(0, 1, 1 << 17))
    };
    let rows = b"q\ts1\t90\nq\ts2\t80\n";
    assert!(matches!(commit(&sink, within(85.0, 100.0), rows), Err(Failure::Misplaced)));
    assert!(scan(&path, true).unwrap().tasks.is_empty());
    assert!(commit(&sink, within(80.0, 100.0), rows).is_ok());
    assert_eq!(scan(&path, true).unwrap().tasks.len(), 1);
}

#[test]
fn a_tool_that_says_that_it_lost_records_is_not_believed() {
    let folder = TempDir::new().unwrap();
    let (sink, _) = sink(folder.path(), "concat");
    let doubt = |head: TaskHead, stderr: &[u8]| {
        sink.expect(1, plain(head));
        sink.doubt(&task(), stderr)
    };
    assert_eq!(doubt(head(5, 8, 0), b"1 done\n3 done\n"), None);
    let wrong = "it was given 3 records and said that it handled ";
    assert_eq!(doubt(head(5, 8, 0), b"2 done\n"), Some(format!("{wrong}2")));
    assert_eq!(doubt(head(5, 8, 0), b""), Some(format!("{wrong}nothing")));
    assert_eq!(doubt(head(5, 8, 1), b""), None, "the search of a fragment");
    let lost = doubt(head(5, 8, 0), b"3 done\nWarning: lost one\n");
    assert_eq!(lost.as_deref(), Some("it said: Warning: lost one"));
}
