//! The promise of the module: batches partition the input, however it is read and cut.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::scan::{Fault, LOOK_AHEAD, Step};
use super::{Batch, Content, Cutter, Error, Format, Limits, Reader, sniff};

fn cutter(format: Format) -> Cutter {
    match format {
        Format::Regex => Cutter::new(format, Some("^>"), Some("^/")).unwrap(),
        _ => Cutter::new(format, None, None).unwrap(),
    }
}

/// Cuts `input` read `piece` bytes at a time, with nothing between scanner and test.
fn scan_in_pieces(cutter: &Cutter, input: &[u8], piece: usize) -> Result<Vec<(Vec<u8>, u64)>, Fault> {
    let mut scanner = cutter.scanner();
    let (mut records, mut record, mut cost) = (Vec::new(), Vec::new(), 0);
    let (mut at, mut seen) = (0, 0);
    while at < input.len() || !record.is_empty() {
        let eof = seen == input.len();
        let Step { len, cost: more, ended, .. } = scanner.scan(&input[at..seen], eof)?;
        record.extend_from_slice(&input[at..at + len]);
        at += len;
        cost += more;
        if ended {
            assert!(!record.is_empty());
            records.push((std::mem::take(&mut record), std::mem::take(&mut cost)));
        } else {
            assert!(!eof || record.is_empty());
            seen = (seen + piece).min(input.len());
        }
    }
    Ok(records)
}

/// The records of `input`, which must not depend on how it is read.
fn records(format: Format, input: &str) -> Vec<String> {
    let whole = scan_in_pieces(&cutter(format), input.as_bytes(), usize::MAX / 2).unwrap();
    for piece in 1..9 {
        assert_eq!(scan_in_pieces(&cutter(format), input.as_bytes(), piece).unwrap(), whole);
    }
    whole.into_iter().map(|(record, _)| String::from_utf8(record).unwrap()).collect()
}

fn fault(input: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("reads.fq");
    fs::write(&path, input).unwrap();
    let mut reader = Reader::new(vec![path], cutter(Format::Fastq)).unwrap();
    loop {
        match reader.skip(1) {
            Ok(batch) => assert!(batch.is_some(), "no fault"),
            Err(error) => return error.to_string().rsplit_once('/').unwrap().1.to_owned(),
        }
    }
}

#[test]
fn fasta_begins_at_a_header_at_the_start_of_a_line() {
    assert_eq!(records(Format::Fasta, ">a>b\nAC>GT\n>c\r\n\r\n>d"), [">a>b\nAC>GT\n", ">c\r\n\r\n", ">d"]);
    assert_eq!(records(Format::Fasta, "\n; x\n>a\nA\n>\n>"), ["\n; x\n>a\nA\n", ">\n", ">"]);
    assert_eq!(records(Format::Fasta, "ACGT\nAC"), ["ACGT\nAC"]);
    assert!(records(Format::Fasta, "").is_empty());
}

#[test]
fn fasta_gap_line_of_blast_is_no_header() {
    assert_eq!(records(Format::Fasta, ">a\nAC\n>?unk100\nGT\n>b\n"), [">a\nAC\n>?unk100\nGT\n", ">b\n"]);
    assert_eq!(records(Format::Fasta, ">?a\nAC\n>b\n"), [">?a\nAC\n", ">b\n"]);
}

#[test]
fn fasta_cost_is_residues() {
    let cut = scan_in_pieces(&cutter(Format::Fasta), b"\n>a bc\nAC GT\r\nA\n>b\n>c\nA*-", 3).unwrap();
    assert_eq!(cut.iter().map(|(_, cost)| *cost).collect::<Vec<_>>(), [5, 0, 2]);
}

#[test]
fn fastq_counts_quality_to_find_the_end() {
    let one = "@a\nACGT\n+\n@+@+\n@b x\nA\n+b\n@\n";
    assert_eq!(records(Format::Fastq, one), ["@a\nACGT\n+\n@+@+\n", "@b x\nA\n+b\n@\n"]);
    let many = "\n@a\r\nAC\r\nGT\r\n+\r\n@+\r\n@+\r\n\r\n@b\r\nA\r\n+\r\n@";
    assert_eq!(records(Format::Fastq, many), [&many[..26], &many[26..]]);
    let empty = "@a\n\n+\n\n@b\n+\n@c\nA\n+\nI\n\n";
    assert_eq!(records(Format::Fastq, empty), ["@a\n\n+\n\n", "@b\n+\n", "@c\nA\n+\nI\n\n"]);
}

#[test]
fn fastq_faults_name_line_and_read() {
    let good = "@r1\nACGT\n+\nIIII\n";
    let cases = [
        (
            format!("{good}@r2 x\nACGT\nIIII\n@r3\nA\n+\nI\n"),
            "reads.fq:7: expected '+' after the sequence of r2, found 'I'",
        ),
        (format!("{good}@r2\nACGT\n5555\n"), "reads.fq:7: expected '+' after the sequence of r2, found '5'"),
        (format!("{good}>r2\nACGT\n"), "reads.fq:5: expected '@' at the start of a record, found '>'"),
        (format!("{good}@r2\nACGT\n+\nIIIII\n"), "reads.fq:8: the quality of r2 has 5 letters, its sequence 4"),
        (format!("{good}@r2\nACGT\n+\nII"), "reads.fq:8: the file ends within r2"),
        (format!("{good}@r2\nACGT\n"), "reads.fq:7: the file ends within r2"),
    ];
    for (input, message) in cases {
        assert_eq!(fault(&input), message);
    }
}

#[test]
fn end_delimited_formats_keep_trailing_blank_lines_with_the_last_record() {
    let sdf = "a\n\n\nM  END\n$$$$\n\n\n\nM  END\n$$$$\n\n \n";
    assert_eq!(records(Format::Sdf, sdf), [&sdf[..16], &sdf[16..]]);
    assert_eq!(records(Format::Hmm, "A\n//\n\nB\n//\nC"), ["A\n//\n", "\nB\n//\n", "C"]);
    let cm = "INFERNAL1/a\nNAME a\n//\nHMMER3/f\nNAME a\n//\n";
    assert_eq!(records(Format::Cm, &cm.repeat(2)), [cm, cm]);
    assert_eq!(records(Format::Stockholm, "# S\nx//\n//\n# S\n//"), ["# S\nx//\n//\n", "# S\n//"]);
    assert_eq!(
        records(Format::Pdbqt, "MODEL 1\nENDMDL  \nMODEL 2\nENDMDL\n"),
        ["MODEL 1\nENDMDL  \n", "MODEL 2\nENDMDL\n"]
    );
    assert_eq!(records(Format::Pdbqt, "ROOT\nATOM\n"), ["ROOT\nATOM\n"]);
}

#[test]
fn mol2_comments_go_with_the_molecule_after_them() {
    let input = "# h\n@<TRIPOS>MOLECULE\n\n@<TRIPOS>BOND\n# in\n 1\n\n#### Name: b\n\n@<TRIPOS>MOLECULE\nb\n#e\n";
    let at = input.find("\n#### Name").unwrap();
    assert_eq!(records(Format::Mol2, input), [&input[..at], &input[at..]]);
}

#[test]
fn genbank_begins_at_locus() {
    assert_eq!(
        records(Format::Genbank, "SEQ\n\nLOCUS a\n//\n\nLOCUS b\n//\n"),
        ["SEQ\n\nLOCUS a\n//\n\n", "LOCUS b\n//\n"]
    );
}

#[test]
fn smiles_are_not_cut_after_a_blank_line() {
    assert_eq!(records(Format::Smiles, "# c\nC a\n# d\nCC b\n"), ["# c\nC a\n# d\n", "CC b\n"]);
    assert_eq!(records(Format::Smiles, "C a\nN b\n\nO c\nF d\n"), ["C a\n", "N b\n\nO c\nF d\n"]);
}

#[test]
fn simple_records() {
    assert_eq!(records(Format::Jsonl, "\n{}\n\n{}\n{}"), ["\n{}\n\n", "{}\n", "{}"]);
    assert_eq!(records(Format::Lines, "a\n\nb"), ["a\n", "\n", "b"]);
    assert_eq!(records(Format::Nul, "a\nb\0\0c\n"), ["a\nb\0", "\0", "c\n"]);
}

#[test]
fn rows_are_cut_outside_quotes_only() {
    for row in
        ["a,b", "", "\"a\nb\",c", "a;\"x\"\"\n\"\"\n\";c\r", "a,\"\"", "\"\"\"\n\"", "a\t\"\n\"", "'x' \"y\n\" \"z,\""]
    {
        let input = format!("{row}\n{row}\nz");
        assert_eq!(records(Format::Csv, &input), [format!("{row}\n"), format!("{row}\n"), "z".to_owned()]);
    }
    assert_eq!(records(Format::Csv, "a\n\"b\nc"), ["a\n", "\"b\nc"]);
    let marked = ["\u{feff}\"a\n\",b\n", "c\n"];
    assert_eq!(records(Format::Csv, &marked.concat()), marked);
    assert_eq!(records(Format::Csv, "\u{feff}"), ["\u{feff}"]);
    for (row, line) in [
        ("5\" pipe", 3),
        ("a,\"b\"\nc;\"d\"", 4),
        ("x, \"y\",z", 3),
        ("\"a\",\u{feff}\"b\"", 3),
        ("\"a\"b", 3),
        ("a \"b,\"c\"", 3),
        ("\"a\n\"b", 4),
    ] {
        for piece in [1, 3, 100] {
            let input = format!("\n\n{row}\n");
            let fault = scan_in_pieces(&cutter(Format::Csv), input.as_bytes(), piece).unwrap_err();
            assert_eq!((fault.line, fault.problem.as_str()), (Some(line), "a quote in the middle of a field"));
        }
    }
}

#[test]
fn regex_records_begin_and_end_where_told() {
    let cut = |start, end, input: &str| {
        let cutter = Cutter::new(Format::Regex, start, end).unwrap();
        let records = scan_in_pieces(&cutter, input.as_bytes(), 2).unwrap();
        records.into_iter().map(|(record, _)| String::from_utf8(record).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(cut(Some("^ID"), None, "x\nID a\n1\nID b\n"), ["x\nID a\n1\n", "ID b\n"]);
    assert_eq!(cut(None, Some("^END$"), "a\r\nEND\r\nb\nENDS\nEND\n\n"), ["a\r\nEND\r\n", "b\nENDS\nEND\n\n"]);
    assert_eq!(cut(Some("^B"), Some("^E"), "B\nE\nx\nB\nB\nE\n"), ["B\nE\n", "x\nB\n", "B\nE\n"]);
    assert_eq!(cut(None, Some("^$"), "a\n\n\nb\n"), ["a\n\n", "\nb\n"]);
}

#[test]
fn regex_wrong_use_is_told() {
    let told = |format, start| Cutter::new(format, start, None).unwrap_err().to_string();
    assert!(told(Format::Regex, Some("(")).starts_with("record_start is no regular expression"));
    assert_eq!(told(Format::Regex, None), "format regex needs record_start, record_end or both");
    assert!(told(Format::Fasta, Some("x")).contains("not to fasta"));
}

#[test]
fn regex_line_too_long_to_match_is_refused() {
    let input = vec![b'x'; 3 << 20];
    assert!(
        scan_in_pieces(&cutter(Format::Regex), &input, 1 << 16).unwrap_err().problem.contains("longer than 1048576")
    );
}

#[test]
fn long_runs_of_blank_lines_are_not_kept_in_memory() {
    let blank = "\n".repeat(LOOK_AHEAD + 10);
    let input = format!("a\n$$$$\n{blank}b\n$$$$\n");
    for piece in [777, 70_000, 1 << 20] {
        let cut = scan_in_pieces(&cutter(Format::Sdf), input.as_bytes(), piece).unwrap();
        assert_eq!(cut.iter().map(|(record, _)| record.len()).collect::<Vec<_>>(), [8 + LOOK_AHEAD, 16]);
    }
}

#[test]
fn sdf_item_is_told_by_its_whole_line() {
    let input = format!("a\n\n\nM  END\n> {} <N>\n1\n$$$$\n\n$$$$\nb\n$$$$\n", "x".repeat(100));
    let whole = scan_in_pieces(&cutter(Format::Sdf), input.as_bytes(), input.len()).unwrap();
    assert_eq!(whole.len(), 2);
    for piece in 1..input.len() {
        assert_eq!(scan_in_pieces(&cutter(Format::Sdf), input.as_bytes(), piece).unwrap(), whole, "{piece}");
    }
}

fn batches(paths: &[PathBuf], format: Format, limits: Limits, buffer: usize, dest: &Path) -> Result<Vec<u8>, Error> {
    let mut reader = Reader::with_buffer(paths.to_vec(), cutter(format), buffer)?;
    let (mut joined, mut all) = (Vec::new(), Vec::new());
    while let Some(batch) = reader.cut(dest, limits)? {
        let bytes = fs::read(dest).unwrap();
        assert_eq!((batch.bytes, batch.crc32c), (bytes.len() as u64, crc32c::crc32c(&bytes)));
        joined.extend(bytes);
        all.push(batch);
        // A batch is cut again on the way to a record that fails, and must then hold the same records.
        let mut recut = Reader::new(vec![dest.to_owned()], cutter(format))?;
        let mut costs = Vec::new();
        while let Some(one) = recut.skip(1)? {
            costs.push(one.cost);
        }
        assert_eq!((costs.len() as u64, costs.iter().sum::<u64>()), (batch.records, batch.cost));
        fs::remove_file(dest).unwrap();
    }
    assert!(!dest.exists() && reader.at_end());
    assert_eq!(Some(reader.offset()), reader.total());
    // A second reader that passes over the same records sees the same bytes.
    let mut again = Reader::new(paths.to_vec(), cutter(format))?;
    for batch in all {
        let passed = again.skip(batch.records)?;
        assert_eq!(passed, Some(Batch { ..batch }));
    }
    assert!(again.skip(1)?.is_none());
    Ok(joined)
}

/// Text in which the marks of all formats stand at bad places.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let words = prop::sample::select(vec![
        "\n",
        "\n",
        "\n",
        "\r\n",
        ">",
        ">a b\n",
        ">?",
        "ACGT",
        "AC>GT\n",
        "@<TRIPOS>MOLECULE",
        "@<TRIPOS>MOLECULE\n",
        "#",
        "# c\n",
        "$$$$\n",
        "$$$$",
        "//\n",
        "//",
        "ENDMDL\n",
        "LOCUS ",
        "LOCUS",
        "BEGIN IONS\n",
        "BEGIN IONS",
        "BEGIN ",
        "{\"a\":1}\n",
        ",\"b\nc\",",
        " ",
        "\t\n",
        "\0",
        "/",
        "x",
        "\n\n\n",
        "@r\nAC\n+\nII\n",
        "\u{e9}",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| words.concat().into_bytes())
}

fn formats() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::ALL.map(|(_, format)| format).to_vec())
}

/// Formats without a header, so that each byte is in one batch.
fn headless() -> impl Strategy<Value = Format> {
    formats().prop_filter("no header", |&format| cutter(format).header().is_none())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * ProptestConfig::default().cases, ..ProptestConfig::default() })]

    #[test]
    fn records_partition_the_input_however_it_is_read(input in texts(), format in formats(), piece in 1..40_usize) {
        let cutter = cutter(format);
        let whole = scan_in_pieces(&cutter, &input, usize::MAX / 2);
        prop_assert_eq!(&scan_in_pieces(&cutter, &input, piece), &whole);
        match whole {
            Ok(records) => prop_assert_eq!(records.into_iter().flat_map(|(record, _)| record).collect::<Vec<_>>(), input),
            Err(_) => prop_assert!(matches!(format, Format::Fastq | Format::Csv | Format::CsvHeader)),
        }
    }

    #[test]
    fn fastq_is_cut_where_it_was_written(
        reads in prop::collection::vec(("[!-~]{0,9}", "[ACGTN]{0,30}", 1..12_usize), 0..8), crlf: bool, piece in 1..40_usize,
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let wrap = |text: &str, width: usize| text.as_bytes().chunks(width).map(|line| {
            format!("{}{end}", String::from_utf8_lossy(line))
        }).collect::<String>();
        let records: Vec<Vec<u8>> = reads.iter().map(|(name, sequence, width)| {
            let quality = "@+I>".repeat(8)[..sequence.len()].to_owned();
            format!("@{name}{end}{}+{end}{}", wrap(sequence, *width), wrap(&quality, *width)).into_bytes()
        }).collect();
        let cut = scan_in_pieces(&cutter(Format::Fastq), &records.concat(), piece).unwrap();
        prop_assert_eq!(cut.into_iter().map(|(record, _)| record).collect::<Vec<_>>(), records);
    }
}

proptest! {
    #[test]
    fn every_batch_begins_with_the_header(
        input in texts(), format in prop::sample::select(vec![Format::CsvHeader, Format::LinesHeader, Format::Vcf, Format::Mgf]),
        buffer in 1..64_usize, number in 0..4_u64, bytes in 0..60_u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (path, dest) = (dir.path().join("input"), dir.path().join("batch"));
        fs::write(&path, &input).unwrap();
        let rows = scan_in_pieces(&cutter(format), &input, usize::MAX / 2);
        prop_assume!(rows.is_ok());
        let rows: Vec<Vec<u8>> = rows.unwrap().into_iter().map(|(row, _)| row).collect();
        let is_name = |row: &Vec<u8>| row.starts_with(b"#");
        let names = match format {
            Format::Vcf => rows.iter().take_while(|row| is_name(row)).count(),
            Format::Mgf => rows.iter().take_while(|row| !row.starts_with(b"BEGIN IONS")).count(),
            _ => rows.len().min(1),
        };
        let good = rows[names..].iter().position(|row| format == Format::Vcf && is_name(row)).map_or(rows.len(), |at| names + at);
        let header = rows[..names].concat();

        let mut reader = Reader::with_buffer(vec![path.clone()], cutter(format), buffer).unwrap();
        prop_assert_eq!(reader.header().unwrap(), &header);
        let mut skipper = Reader::with_buffer(vec![path], cutter(format), buffer).unwrap();
        let (mut joined, mut n_records) = (header.clone(), 0);
        let limits = Limits { records: number, cost: 0, bytes };
        let ended = loop {
            match reader.cut(&dest, limits) {
                Ok(Some(batch)) => {
                    let text = fs::read(&dest).unwrap();
                    prop_assert!(text.starts_with(&header));
                    prop_assert_eq!((batch.header + batch.bytes, batch.crc32c), (text.len() as u64, crc32c::crc32c(&text)));
                    prop_assert_eq!(batch.records, if number == 0 { batch.records } else { batch.records.min(number) });
                    prop_assert_eq!(skipper.skip(batch.records).unwrap(), Some(batch));
                    joined.extend_from_slice(&text[header.len()..]);
                    n_records += batch.records;
                    // A batch is an input of its own: cut again, it has the same header.
                    let mut again = Reader::with_buffer(vec![dest.clone()], cutter(format), buffer).unwrap();
                    prop_assert_eq!(again.header().unwrap(), &header);
                    prop_assert_eq!(again.skip(batch.records).unwrap(), Some(batch));
                }
                ended => break ended,
            }
        };
        prop_assert_eq!(joined, rows[..good].concat());
        prop_assert_eq!(n_records as usize, good - names);
        prop_assert_eq!(ended.is_err(), good < rows.len());
    }

    #[test]
    fn batches_partition_the_sources_whatever_the_limits(
        inputs in prop::collection::vec(texts(), 1..4), format in headless(), buffer in 1..64_usize,
        records in 0..4_u64, cost in 0..30_u64, bytes in 0..60_u64,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (0..inputs.len()).map(|n| dir.path().join(n.to_string())).collect();
        for (path, input) in paths.iter().zip(&inputs) {
            fs::write(path, input).unwrap();
        }
        match batches(&paths, format, Limits { records, cost, bytes }, buffer, &dir.path().join("batch")) {
            Ok(joined) => prop_assert_eq!(joined, inputs.concat()),
            Err(error) => {
                let is_data = matches!(error, Error::Data { .. });
                prop_assert!(is_data && matches!(format, Format::Fastq | Format::Csv));
            }
        }
    }
}

#[test]
fn sources_have_one_header() {
    let dir = tempfile::tempdir().unwrap();
    let dest = dir.path().join("batch");
    let cut = |texts: [&str; 2]| {
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
        let mut reader = Reader::new(paths.to_vec(), cutter(Format::Vcf)).unwrap();
        let mut found = Vec::new();
        loop {
            match reader.cut(&dest, Limits::default()) {
                Ok(Some(_)) => found.push(fs::read_to_string(&dest).unwrap()),
                Ok(None) => return Ok(found),
                Err(error) => return Err(error.to_string()),
            }
        }
    };
    assert_eq!(cut(["#h\n1\n", "#h\n2\n"]).unwrap(), ["#h\n1\n", "#h\n2\n"]);
    assert_eq!(cut(["#h\n", "#h\n2\n"]).unwrap(), ["#h\n2\n"]);
    assert!(cut(["#h\n", "#H\n2\n"]).unwrap_err().contains("another header"));
    assert!(cut(["#h\n1\n", "#H\n2\n"]).unwrap_err().contains("another header"));
    assert!(cut(["#h\n1\n#h\n", ""]).unwrap_err().contains(":3: a line of the header stands behind the first record"));
}

#[test]
fn blank_source_shares_no_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (paths, dest) = (["a", "b"].map(|name| dir.path().join(name)), dir.path().join("batch"));
    for (format, end) in
        [(Format::Hmm, "//"), (Format::Stockholm, "//"), (Format::Sdf, "$$$$"), (Format::Pdbqt, "ENDMDL")]
    {
        for (second, n_batches) in [("\n \n".to_owned(), 2), (format!("\nB\n{end}\n"), 1)] {
            fs::write(&paths[0], format!("A\n{end}\n")).unwrap();
            fs::write(&paths[1], &second).unwrap();
            let mut reader = Reader::new(paths.to_vec(), cutter(format)).unwrap();
            let cut = std::iter::from_fn(|| reader.cut(&dest, Limits::default()).unwrap());
            assert_eq!(cut.count(), n_batches, "{format:?} {second:?}");
        }
    }
}

#[test]
fn damaged_record_comes_after_those_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (path, dest) = (dir.path().join("reads.fq"), dir.path().join("batch"));
    let good = "@r1\nACGT\n+\nIIII\n@r2\nAC\n+\nII\n";
    fs::write(&path, format!("{good}@r3\nACGTACGTACGT\n+\n")).unwrap();
    for buffer in [3, 1 << 16] {
        let mut reader = Reader::with_buffer(vec![path.clone()], cutter(Format::Fastq), buffer).unwrap();
        let batch = reader.cut(&dest, Limits::default()).unwrap().unwrap();
        assert_eq!((batch.records, batch.crc32c), (2, crc32c::crc32c(good.as_bytes())));
        assert_eq!(fs::read(&dest).unwrap(), good.as_bytes());
        assert!(!reader.at_end());
        fs::remove_file(&dest).unwrap();
        for _ in 0..2 {
            assert!(matches!(reader.cut(&dest, Limits::default()), Err(Error::Data { record: 3, line: Some(12), .. })));
            assert!(!dest.exists());
        }
    }
}

#[test]
fn two_files_share_a_batch_only_if_reading_them_as_one_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let cut = |format, texts: [&str; 2]| {
        let paths = ["a", "b"].map(|name| dir.path().join(name));
        for (path, text) in paths.iter().zip(texts) {
            fs::write(path, text).unwrap();
        }
        let mut reader = Reader::new(paths.to_vec(), cutter(format)).unwrap();
        let mut sizes = Vec::new();
        while let Some(batch) = reader.cut(&dir.path().join("batch"), Limits::default()).unwrap() {
            sizes.push(batch.records);
        }
        sizes
    };
    assert_eq!(cut(Format::Fasta, [">a\nA\n", ">b\nA\n"]), [2]);
    assert_eq!(cut(Format::Fasta, [">a\nA", ">b\nA\n"]), [1, 1]);
    assert_eq!(cut(Format::Fasta, [">a\nA\n", "ACGT\n"]), [1, 1]);
    assert_eq!(cut(Format::Sdf, ["a\n$$$$\n", "b\n$$$$\n"]), [2]);
    assert_eq!(cut(Format::Sdf, ["a\n$$$$\n\n", "b\n$$$$\n"]), [1, 1]);
    assert_eq!(cut(Format::Sdf, ["a\n", "b\n$$$$\n"]), [1, 1]);
    assert_eq!(cut(Format::Smiles, ["C\n\nO\n", "N\n"]), [1, 1]);
    assert_eq!(cut(Format::Lines, ["a\n", ""]), [1]);
}

#[test]
fn sniff_tells_only_what_is_sure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x");
    let guess = |text: &str| {
        fs::write(&path, text).unwrap();
        sniff(&path).unwrap()
    };
    assert_eq!(guess("\n>a\nACGT\n"), Some(Format::Fasta));
    assert_eq!(guess("@a\nACGT\n+\nIIII\n"), Some(Format::Fastq));
    assert_eq!(guess("@HD\tVN:1.6\n@SQ\tSN:a\n"), None);
    assert_eq!(guess("# x\n@<TRIPOS>MOLECULE\na\n"), Some(Format::Mol2));
    assert_eq!(guess("a\n\n\n 13 13  0  0  V2000\n"), Some(Format::Sdf));
    assert_eq!(guess("HMMER3/f [3.3.2 | Nov 2020]\n"), Some(Format::Hmm));
    assert_eq!(guess("# STOCKHOLM 1.0\n"), Some(Format::Stockholm));
    assert_eq!(guess("INFERNAL1/a [1.1.4 | Dec 2020]\n"), Some(Format::Cm));
    assert_eq!(guess("LOCUS       X\n"), Some(Format::Genbank));
    assert_eq!(guess("{\"a\": 1}\n{\n"), Some(Format::Jsonl));
    assert_eq!(guess("ROOT\nATOM  1\nENDROOT\n"), Some(Format::Pdbqt));
    assert_eq!(guess("CCO ethanol\n"), None);
    assert_eq!(guess(""), None);
}

#[test]
fn empty_records_stay_with_their_neighbours_if_glued() {
    let text = b">e0\n>a\nACG\n>e1\n\n>e2 x\n>b\nA\n>c\nC\n>e3";
    let dir = tempfile::tempdir().unwrap();
    let (path, dest) = (dir.path().join("q.fa"), dir.path().join("dest"));
    fs::write(&path, text).unwrap();
    for buffer in 8..64 {
        let mut reader = Reader::with_buffer(vec![path.clone()], cutter(Format::Fasta), buffer).unwrap();
        reader.need_content(Content::new(b"", 1));
        let limits = Limits { records: 1, ..Limits::default() };
        let mut found = Vec::new();
        while let Some(batch) = reader.cut(&dest, limits).unwrap() {
            assert_eq!(batch.crc32c, crc32c::crc32c(&fs::read(&dest).unwrap()));
            found.push((batch.records, batch.cost));
        }
        assert_eq!(found, [(2, 3), (3, 1), (2, 1)], "buffer {buffer}");
    }
}

#[test]
fn records_without_content_stay_with_their_neighbours() {
    let dir = tempfile::tempdir().unwrap();
    let (path, dest) = (dir.path().join("q"), dir.path().join("dest"));
    let cases: [(Format, &[u8], Content, &[u64]); 5] = [
        (Format::Fasta, b">n\nNNNNNN\n>a\nNNA\n>m\nNN\n\nNN\n>b\nACGT\n>o\nNN", Content::new(b"ACGT", 1), &[2, 3]),
        (Format::Fasta, b">s\nAC\n>t\nA\nC\nG\n>u\nAC\n>v\nACGT\n", Content::new(b"", 3), &[2, 2]),
        (Format::Fasta, b">n\nNNN\n>m\nNN\n", Content::new(b"ACGT", 1), &[2]),
        (Format::Fastq, b"@a\nACG\n+\n@@@\n@b\nAC\n+\n@I\n@c\n\n+\n\n@d\nACG\n+\nIII\n", Content::new(b"", 3), &[1, 3]),
        (Format::Fastq, b"@a\nAC\n+\n@@\n@b\nACG\n+\nIII\n", Content::new(b"", 3), &[2]),
    ];
    for (format, text, content, expected) in cases {
        fs::write(&path, text).unwrap();
        for buffer in 8..64 {
            let mut reader = Reader::with_buffer(vec![path.clone()], cutter(format), buffer).unwrap();
            reader.need_content(content.clone());
            let limits = Limits { records: 1, ..Limits::default() };
            let found = std::iter::from_fn(|| reader.cut(&dest, limits).unwrap().map(|batch| batch.records));
            assert_eq!(found.collect::<Vec<_>>(), expected, "buffer {buffer}, {format:?}");
        }
    }
}

#[test]
fn groups_are_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let (path, dest) = (dir.path().join("q.fa"), dir.path().join("dest"));
    // Groups of at least 5 residues: [3 1 1] [9] [2 2 2] [4 5] [1]
    fs::write(&path, ">a\nACG\n>b\nA\n>c\nA\n>d\nACGTACGTA\n>e\nAA\n>f\nCC\n>g\nGG\n>h\nACGT\n>i\nACGTA\n>j\nA\n")
        .unwrap();
    let cut = |limits: Limits, buffer| {
        let mut reader = Reader::with_buffer(vec![path.clone()], cutter(Format::Fasta), buffer).unwrap();
        reader.group_by(5);
        std::iter::from_fn(|| reader.cut(&dest, limits).unwrap().map(|batch| batch.records)).collect::<Vec<_>>()
    };
    for buffer in 8..40 {
        assert_eq!(cut(Limits { records: 1, ..Limits::default() }, buffer), [3, 1, 3, 2, 1]);
        assert_eq!(cut(Limits { records: 4, ..Limits::default() }, buffer), [4, 5, 1]);
        assert_eq!(cut(Limits { cost: 6, ..Limits::default() }, buffer), [4, 3, 2, 1]);
    }
}

#[test]
fn a_data_item_without_its_empty_line_takes_the_next_molecule_along() {
    let dir = tempfile::tempdir().unwrap();
    let (path, dest) = (dir.path().join("q.sdf"), dir.path().join("dest"));
    let whole = "a\n\n\n  0  0  0  0  V2000\nM  END\n>  <N>\n1 < 2\n\n>  <M>\n\n$$$$\n";
    let open = whole.replace("<M>\n\n", "<M>\n5\n");
    for (text, records) in [
        (whole.repeat(3), vec![whole.to_owned(), whole.to_owned(), whole.to_owned()]),
        (format!("{whole}{open}{whole}{whole}"), vec![whole.to_owned(), format!("{open}{whole}"), whole.to_owned()]),
        (format!("{whole}{open}"), vec![whole.to_owned(), open.clone()]),
    ] {
        for buffer in 8..80 {
            fs::write(&path, &text).unwrap();
            let mut reader = Reader::with_buffer(vec![path.clone()], cutter(Format::Sdf), buffer).unwrap();
            let limits = Limits { records: 1, ..Limits::default() };
            let mut found = Vec::new();
            while reader.cut(&dest, limits).unwrap().is_some() {
                found.push(fs::read_to_string(&dest).unwrap());
            }
            assert_eq!(found, records);
        }
    }
}
