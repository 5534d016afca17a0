use proptest::prelude::*;

use super::*;

type Block = (u64, Vec<u8>);

fn sequential(spec: &str, blocks: &[Block]) -> Result<Vec<u8>, JoinError> {
    let mut joiner = joiner(spec)?;
    let mut out = vec![];
    blocks.iter().try_for_each(|(n_records, block)| joiner.block(*n_records, &mut block.as_slice(), &mut out))?;
    joiner.finish(&mut out)?;
    Ok(out)
}

/// Joins each block by itself. `missing` records before the first block have no result, which is not known when it is measured.
fn apart(spec: &str, blocks: &[Block], missing: u64) -> Result<Vec<u8>, String> {
    let mut layout = Layout::default();
    let (mut out, mut first, mut last) = (vec![], missing, None);
    for (n_records, block) in blocks {
        let look = |first| {
            let found = measure(spec, first, *n_records, &mut block.as_slice()).map_err(|error| error.to_string())?;
            let bytes = found.expect("a joiner that can do it").encode();
            Ok::<_, String>(Outline::decode(&bytes).expect("an outline"))
        };
        let mut outline = look(first)?;
        if !layout.holds(&outline) {
            outline = look(layout.before().records)?;
        }
        let before = layout.before().clone();
        let length = layout.add(*n_records, &outline).ok_or("it does not fit")?;
        let begin = out.len() as u64;
        join_behind(spec, &before, *n_records, &mut block.as_slice(), &mut out).map_err(|error| error.to_string())?;
        assert_eq!(out.len() as u64 - begin, length, "{spec}: {before:?}");
        first += n_records;
        if outline.foot.is_some() {
            last = Some((before, *n_records, block));
        }
    }
    if let Some((before, n_records, block)) = last {
        out.extend(end_behind(spec, &before, n_records, &mut block.as_slice()).map_err(|error| error.to_string())?);
    }
    Ok(out)
}

fn xml(n: u64) -> String {
    let search = |k: u64| {
        format!(
            "<Iteration>\n  <Iteration_iter-num>{k}</Iteration_iter-num>\n  <Iteration_query-ID>Query_{k}</Iteration_query-ID>\n  \
             <Iteration_message>Query_{k} a title that is:  Query_{k} a title that is: No hits found</Iteration_message>\n</Iteration>\n"
        )
    };
    let searches: String = (1..=n).map(search).collect();
    format!(
        "<?xml version=\"1.0\"?>\n<BlastOutput>\n  <BlastOutput_query-ID>Query_1</BlastOutput_query-ID>\n\
         <BlastOutput_iterations>\n{searches}</BlastOutput_iterations>\n</BlastOutput>\n"
    )
}

fn json(n: u64) -> String {
    let searches: Vec<_> = (1..=n).map(|k| format!("{{\n  \"query_id\": \"Query_{k}\",\n}}\n")).collect();
    format!("{{\n\"BlastOutput2\": [\n{}]\n}}\n", searches.join(",\n"))
}

fn xml2(n: u64) -> String {
    let searches: Vec<_> = (1..=n).map(|k| format!("<BlastOutput2>\n  <query-id>Query_{k}</query-id>\n")).collect();
    format!("<?xml version=\"1.0\"?>\n<BlastXML2\n>\n{}</BlastXML2>\n", searches.join("\n"))
}

fn rows(n: u64) -> String {
    (1..=n).flat_map(|k| (0..k % 4).map(move |_| format!("Query_{k}\tQuery_{k}\tsubject\n"))).collect()
}

fn comments(n: u64) -> String {
    let section = |k: u64| format!("# BLASTP\n# Query: \n# 1 hits found\nQuery_{k}\tsubject\n");
    format!("{}# BLAST processed {n} queries\n", (1..=n).map(section).collect::<String>())
}

fn report(n: u64) -> String {
    let queries: Vec<_> = (1..=n).map(|k| format!("Query= q{k}\n\nno hits\n")).collect();
    format!("BLASTP\n\n\n{}\n\n  Database: db\nMatrix: BLOSUM62\n", queries.join("\n\n\n"))
}

fn alignments(n: u64) -> String {
    let one = |k: u64| format!("Seq-annot ::= {{\n  ids {{\n    local str \"Query_{k}\",\n    gi 7\n  }},\n}}\n");
    (1..=n).map(one).collect()
}

fn hmmer_report(n: u64) -> String {
    let rule = "# - - - - - - - - - - -\n";
    let queries: String = (1..=n).map(|k| format!("Query: q{k}\n# CPU time: {k}\n//\n")).collect();
    format!("# hmmscan :: search\n{rule}# number of worker threads:        0\n{rule}\n{queries}[ok]\n")
}

fn hmmer_table(n: u64) -> String {
    let rows: String =
        (1..=n).map(|k| format!("target{} q{k}\n", "x".repeat(usize::try_from(k % 3).unwrap()))).collect();
    let header = format!("# target name  query\n#{} -----\n", "-".repeat(usize::try_from(n % 5 + 1).unwrap()));
    let trailer = "#\n# Program:         hmmscan\n# Option settings: hmmscan --cpu 0 db q \n";
    format!("{header}{rows}{trailer}# Date:            day {n}\n# [ok]\n")
}

fn sam(n: u64) -> String {
    let rows: String = (1..=n).map(|k| format!("r{k}\t0\tref\n")).collect();
    format!("@HD\tVN:1.6\n@SQ\tSN:ref\n{rows}")
}

fn totals(n: u64) -> String {
    format!("{}all: {n} reads, {} bases\n", "line\n".repeat(usize::try_from(n).unwrap()), n * 9)
}

/// What a tool writes for so many records.
type Text = fn(u64) -> String;

/// Joins, each with what its tool writes.
const FORMATS: [(&str, Text); 15] = [
    ("blast-report", report),
    ("blast-xml", xml),
    ("blast-xml2", xml2),
    ("blast-json", json),
    ("blast-tabular:columns=2,unnamed", rows),
    ("blast-comments:columns=1", comments),
    ("blast-seqalign", alignments),
    ("blast-seqalign:parsed", alignments),
    ("hmmer-report:--cpu 0=4", hmmer_report),
    ("hmmer-table:--cpu 0", hmmer_table),
    ("hmmer-sections:--cpu 0", hmmer_table),
    ("sam", sam),
    ("header:1\nfooter:2", comments_of_two),
    ("totals:^all: (\\d+) reads, (\\d+) bases$", totals),
    ("csv\nunbroken", sam),
];

fn comments_of_two(n: u64) -> String {
    format!("head\n{}end\nof it\n", "line\n".repeat(usize::try_from(n).unwrap()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn blocks_that_are_joined_one_by_one_are_the_output(
        sizes in prop::collection::vec(1_u64..60, 1..6), missing in prop_oneof![Just(0), 1_u64..120],
    ) {
        for (spec, text) in FORMATS {
            let blocks: Vec<Block> = sizes.iter().map(|n| (*n, text(*n).into_bytes())).collect();
            let whole = sequential(spec, &blocks).map_err(|error| error.to_string());
            prop_assert_eq!(apart(spec, &blocks, missing).map_err(|error| format!("{spec}: {error}")), whole);
        }
    }
}

fn of(texts: &[&str]) -> Vec<Block> {
    texts.iter().map(|text| (1, text.as_bytes().to_vec())).collect()
}

#[test]
fn batches_without_output_add_nothing() {
    let blocks = of(&["", "h\na\n", "", "h\nb\n", ""]);
    assert_eq!(apart("header", &blocks, 0).unwrap(), b"h\na\nb\n");
    assert_eq!(sequential("header", &blocks).unwrap(), b"h\na\nb\n");
}

#[test]
fn a_batch_that_does_not_fit_is_noticed() {
    for (spec, texts) in [
        ("header", ["h\na\n", "H\nb\n"]),
        ("footer", ["a\nf\n", "b\nF\n"]),
        ("header", ["h\na\n", "h\n"]),
        ("header", ["h\na", "h\nb\n"]),
        ("totals:^t (\\d+)$", ["a\nt 1\nt 2\n", "a\nt 3\n"]),
    ] {
        let blocks = of(&texts);
        let fits = sequential(spec, &blocks).is_ok();
        assert_eq!(apart(spec, &blocks, 0).is_ok(), fits, "{spec}: {texts:?}");
    }
    let silent = of(&["", "h\n"]);
    assert!(apart("header", &silent, 0).is_err() && sequential("header", &silent).is_err());
}

#[test]
fn an_input_without_a_record_has_the_output_of_its_one_block() {
    let block = vec![(0, b"h\n".to_vec())];
    assert_eq!(apart("header", &block, 0).unwrap(), b"h\n");
}

#[test]
fn digits_are_counted() {
    let counted = |last: u64| (1..=last).map(|number| number.to_string().len() as u64).sum::<u64>();
    for last in [0, 1, 9, 10, 11, 99, 100, 101, 1000, 12_345] {
        assert_eq!(digits_up_to(last), counted(last), "{last}");
    }
}

#[test]
fn bytes_that_are_no_outline_are_none() {
    let bytes = Outline { counts: vec![3], numbered: true, ..Outline::default() }.encode();
    assert!(Outline::decode(&bytes).is_some_and(|outline| outline.counts == [3] && outline.numbered));
    for other in [&b""[..], b"hits.tsv", &bytes[..bytes.len() - 1], &bytes[..10], &[&[9], &bytes[1..]].concat()] {
        assert_eq!(Outline::decode(other), None);
    }
    assert!(Outline { counts: vec![0; 1 << 13], ..Outline::default() }.encode().is_empty());
}
