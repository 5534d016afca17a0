use std::path::PathBuf;

use super::*;

/// What a search reports of `names`, and that it read `n_targets`.
fn report(names: &[&str], n_targets: u64, size: u64) -> Vec<u8> {
    let rows: String = names
        .iter()
        .map(|name| format!("    1.6e-44  149.4   2.4    1.8e-44  149.2   2.4    1.0  1  {name:<9} Polymerase\n"))
        .collect();
    format!(
        "# hmmsearch :: search\n\nQuery:       a  [M=63]\nScores for complete sequences (score includes all domains):\n\
         \x20   E-value  score  bias    E-value\n    ------- ------ -----    ------- \n{rows}\
         \x20 ------ inclusion threshold ------\n\n\n>> x\n\nInternal pipeline statistics summary:\n---\n\
         Query model(s):                            1  (63 nodes)\n\
         Target sequences:               {n_targets:>12}  ({size} residues searched)\n\
         Passed MSV filter:                         9  (0.1); expected 1.8 (0.02)\n\
         Passed bias filter:                        8  (0.1); expected 1.8 (0.02)\n\
         Passed Vit filter:                         7  (0.1); expected 0.1 (0.001)\n\
         Passed Fwd filter:                         6  (0.1); expected 0.0 (1e-05)\n\
         //\n[ok]\n"
    )
    .into_bytes()
}

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// The candidates of a FASTA file cut at `cuts`, and the counts.
    fn candidates(&self, fasta: &[u8], cuts: &[u64], found: &[Vec<u8>]) -> Result<(String, String), String> {
        self.candidates_beside(fasta, cuts, None, found)
    }

    /// The same, where what is not in `new` is known.
    fn candidates_beside(
        &self,
        fasta: &[u8],
        cuts: &[u64],
        new: Option<&[(u64, u64)]>,
        found: &[Vec<u8>],
    ) -> Result<(String, String), String> {
        let path = self.file("db.faa", fasta);
        prepare_sequences(&path, cuts, New(new), self.folder.path()).map_err(|error| error.to_string())?;
        let found: Vec<&[u8]> = found.iter().map(Vec::as_slice).collect();
        let (dest, side) = (self.path("candidates"), self.path("counts"));
        let n_new = new.unwrap_or_default().iter().map(|range| range.1 - range.0).sum();
        let whole = Whole { path: &path, prepared: self.folder.path(), cuts, n_new };
        sequence_candidates(&whole, &found, &dest, &side).map_err(|error| error.to_string())?;
        Ok((std::fs::read_to_string(dest).unwrap(), std::fs::read_to_string(side).unwrap()))
    }
}

#[test]
fn candidates_keep_their_places_and_all_of_a_name_are_candidates() {
    let fasta = b">a x\nAC\n>b\nDE\n>a\n>c y\nFG\n\n>b\nHI";
    let found = [report(&["a"], 2, 4), report(&["b", "c"], 3, 4)];
    let (database, counts) = Bench::new().candidates(fasta, &[0, 2, 5], &found).unwrap();
    assert_eq!(database, ">a x\nAC\n>-\n>-\n>c y\nFG\n\n>b\nHI\n");
    assert_eq!(counts, "5 8 18 16 14 12\n");
}

#[test]
fn known_targets_and_those_found_among_new_ones_are_candidates() {
    let (fasta, new) = (b">a\nAC\n>b\nDE\n>c\nFG\n>d\nHI", [(1, 2), (3, 4)]);
    let known = |line: &str| format!("# known targets\n{line}\n[ok]\n").into_bytes();
    let made = |found: [Vec<u8>; 2]| {
        let bench = Bench::new();
        let made = bench.candidates_beside(fasta, &[0, 4], Some(&new), &found)?;
        Ok::<_, String>((made, std::fs::read_to_string(bench.path("new.fasta")).unwrap()))
    };
    let ((database, counts), copied) = made([known("2 4 1 1 1 1: 2"), report(&["d"], 2, 4)]).unwrap();
    assert_eq!((database.as_str(), copied.as_str()), (">-\n>-\n>c\nFG\n>d\nHI\n", ">b\nDE\n>d\nHI\n"));
    assert_eq!(counts, "4 8 10 9 8 7\n");
    let ((database, counts), _) = made([report(&["a"], 4, 8), report(&[], 2, 4)]).unwrap();
    assert_eq!((database.as_str(), counts.as_str()), (">a\nAC\n>-\n>-\n>-\n", "4 8 9 8 7 6\n"));
    let ((_, counts), _) = made([known("-:"), report(&[], 2, 4)]).unwrap();
    assert_eq!(counts, "");
    assert!(
        made([known("1 4 1 1 1 1: 2"), report(&[], 2, 4)]).unwrap_err().contains("read 3 targets where there are 4")
    );
    assert!(made([known("-:"), report(&[], 3, 4)]).unwrap_err().contains("read 3 targets where there are 2"));
    assert!(made([known("2 4: 2"), report(&[], 2, 4)]).unwrap_err().contains("unknown line"));
    assert!(made([b"# known targets\n-:\n".to_vec(), report(&[], 2, 4)]).unwrap_err().contains("cut off"));
}

#[test]
fn targets_are_known_by_residues_and_copies_by_their_number() {
    let bench = Bench::new();
    let digests = |fasta: &[u8]| {
        let all = target_digests(&bench.file("db.faa", fasta), false).unwrap();
        all.chunks(16).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let first = digests(b">a\nACDE\n>b\nFG\n>c\nAC DE\n>d\n>e\nACDE\n");
    let again = digests(b">x y\r\nFG\r\n>b\nACD\nE\n>c\nACDE");
    assert_eq!(again, [first[1].clone(), first[0].clone(), first[2].clone()]);
    assert_eq!(first.iter().collect::<std::collections::HashSet<_>>().len(), 5);
    let names = TargetNames::read(&bench.file("db.faa", b">a\nAC\n>b\nDE\n>a\nFG\n"), false).unwrap();
    let found = names.find_queries(&[report(&["b"], 3, 6)].concat()).unwrap();
    assert_eq!(found, [QueryTargets { ordinals: Some(vec![1]), counts: vec![3, 6, 9, 8, 7, 6] }]);
    assert_eq!(names.find_queries(&report(&["a"], 3, 6)).unwrap()[0].ordinals, None);
    let known = names.find_queries(b"# known targets\n-: 0 2\n[ok]\n").unwrap();
    assert_eq!(known, [QueryTargets { ordinals: Some(vec![0, 2]), counts: vec![] }]);
}

#[test]
fn many_fillers_are_as_many_as_there_are_targets() {
    let fasta = b">x\nA\n".repeat(100_000);
    let (database, _) = Bench::new().candidates(&fasta, &[0, 100_000], &[report(&[], 100_000, 1)]).unwrap();
    assert_eq!(database, ">-\n".repeat(100_000));
}

#[test]
fn reports_that_do_not_fit_are_refused() {
    let fasta = b">a\nAC\n>b\nDE\n";
    let problem = |cuts: &[u64], found: &[Vec<u8>]| Bench::new().candidates(fasta, cuts, found).unwrap_err();
    assert!(problem(&[0, 2], &[report(&["c"], 2, 4)]).contains("no target is called 'c'"));
    assert!(problem(&[0, 2], &[report(&["a"], 3, 4)]).contains("HMMER read 3 targets where there are 2"));
    assert!(problem(&[0, 3], &[report(&["a"], 3, 4)]).contains("has 2 entries, but had 3 before"));
    let cut = report(&["a"], 2, 4);
    assert!(problem(&[0, 2], &[cut[..cut.len() - 5].to_vec()]).contains("cut off"));
    let twice = [cut.clone(), cut].concat();
    let one = report(&[], 1, 4);
    assert!(problem(&[0, 1, 2], &[one, twice]).contains("it has 2 queries, the first fragment's has 1"));
}

#[test]
fn sequences_are_those_that_hmmer_reads() {
    let bench = Bench::new();
    let marks = |fasta: &[u8]| sequence_marks(&bench.file("db.faa", fasta), 1 << 20);
    let end = |fasta: &[u8]| *marks(fasta).unwrap().last().unwrap();
    assert_eq!(end(b""), Mark::default());
    assert_eq!(end(b"\n>a\r\nAC DE\r\n\r\n>?b\nF"), Mark { entries: 2, residues: 5, bytes: 19 });
    assert_eq!(end(b"> \t a > b\nAC"), Mark { entries: 1, residues: 2, bytes: 12 });
    for (fasta, problem) in [
        (b"AC\n>a\n".as_slice(), "does not begin as FASTA"),
        (b">a\nAC>b\n", "sequence 1 has a '>' within a line"),
        (b">a\nAC\n> \nDE\n", "sequence 2 has no name"),
        (b">a\nAC\n>", "sequence 2 has no name"),
    ] {
        let error = marks(fasta).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn marks_are_few_and_even() {
    let path = Bench::new();
    let path = path.file("db.faa", &b">a\nACDE\n".repeat(1000));
    let marks = sequence_marks(&path, 10).unwrap();
    assert_eq!(marks.len(), 10);
    assert!(marks.windows(2).all(|pair| pair[1].entries - pair[0].entries <= 101));
    assert_eq!(marks[9], Mark { entries: 1000, residues: 4000, bytes: 8000 });
}

#[test]
fn profiles_of_another_layout_are_refused() {
    let bench = Bench::new();
    for bytes in [b"no profile".as_slice(), &[0; 4096]] {
        let error = profile_nodes(&bench.file("db.h3f", bytes)).unwrap_err().to_string();
        assert!(error.contains("run hmmpress again"), "{error}");
    }
    assert_eq!(profile_nodes(&bench.file("db.h3f", b"")).unwrap(), Vec::<u64>::new());
}
