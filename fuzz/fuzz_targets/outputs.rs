//! Joiners: the outputs of a tool for the batches are joined to its output for all records.
//!
//! Each tool is a function that writes its output for any records, as the real one does. It writes the whole, and each
//! of the batches; the joined batches must be the whole.

#![no_main]

use std::fmt::Write;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use millrace_fuzz::{join_blocks, show};

#[derive(Arbitrary, Debug)]
struct Case {
    tool: u8,
    records: Vec<Record>,
    /// Where batches end.
    cuts: Vec<u8>,
    bite: u8,
}

#[derive(Arbitrary, Debug, Clone)]
struct Record {
    name: Option<Words>,
    rows: Vec<Words>,
}

/// A text on one line, in which the marks of the formats stand at bad places.
#[derive(Arbitrary, Debug, Clone)]
struct Words(Vec<u8>);

const WORDS: [&str; 32] = [
    "a",
    "b",
    "1",
    "9",
    "_",
    " ",
    "  ",
    "#",
    "# ",
    "//",
    "[ok]",
    "Query_1",
    "Query_2",
    "Query_",
    "Query= ",
    "ID=1_1",
    " # ID=1_1;",
    "seqnum=1;",
    "MODEL ",
    "END",
    "$$$$",
    "{",
    "}",
    "=",
    ":",
    ";",
    "# Date: x",
    "# Program: ",
    "  Database: ",
    "# target name ",
    "\u{e9}",
    "... done.",
];

impl Words {
    fn text(&self) -> String {
        self.0.iter().map(|word| WORDS[usize::from(*word) % WORDS.len()]).collect()
    }
}

impl Record {
    /// The name, which begins with a letter, or what the tool calls the record.
    fn name_or(&self, other: &str) -> String {
        self.name.as_ref().map_or(other.to_owned(), |name| format!("n{}", name.text().replace([' ', '#'], "-")))
    }

    fn rows(&self) -> impl Iterator<Item = String> {
        self.rows.iter().map(Words::text)
    }
}

/// Writes the output of a tool for records.
type Tool = fn(&[Record]) -> String;

fn lines(records: &[Record]) -> impl Iterator<Item = String> {
    records.iter().flat_map(Record::rows).map(|row| format!("r{row}\n"))
}

fn headed(records: &[Record]) -> String {
    format!("h\n{}", lines(records).collect::<String>())
}

fn commented(records: &[Record]) -> String {
    format!("#h\n#i\n{}", lines(records).collect::<String>())
}

fn footed(records: &[Record]) -> String {
    format!("{}# a\n# b\n", lines(records).collect::<String>())
}

fn framed(records: &[Record]) -> String {
    format!("h\n{}f\ng\n", lines(records).collect::<String>())
}

fn totalled(records: &[Record]) -> String {
    let rows = lines(records).collect::<Vec<_>>();
    format!("h\n{}# {} of {}\n", rows.concat(), rows.len(), 9 * records.len())
}

fn csv(records: &[Record]) -> String {
    let rows = lines(records).map(|row| format!("1,\"{}\"\n", row.replace('r', "\n\n\"\"")));
    format!("a,\"b\nc\"\n{}", rows.collect::<String>())
}

fn sam(records: &[Record]) -> String {
    format!("@HD\tVN:1.6\n@SQ\tSN:c\tLN:9\n{}", lines(records).map(|row| format!("@{row}")).collect::<String>())
}

fn jsonl(records: &[Record]) -> String {
    lines(records).map(|row| format!("{{\"a\": \"{}\"}}\n", row.trim_end())).collect()
}

fn xml(records: &[Record]) -> String {
    let rows: String = lines(records).map(|row| format!("  <h>{}</h>\n", row.trim_end())).collect();
    format!("<?xml version=\"1.0\"?>\n<d>\n <r n=\"1\">\n{rows} </r>\n</d>\n")
}

fn blast_tabular(records: &[Record], n_columns: usize) -> String {
    let mut out = String::new();
    for (n, record) in records.iter().enumerate() {
        let name = record.name_or(&format!("Query_{}", n + 1));
        record.rows().for_each(|row| writeln!(out, "{}{row}", format!("{name}\t").repeat(n_columns)).unwrap());
    }
    out
}

fn blast_one_name(records: &[Record]) -> String {
    blast_tabular(records, 1)
}

fn blast_two_names(records: &[Record]) -> String {
    blast_tabular(records, 2)
}

fn blast_comments(records: &[Record]) -> String {
    let mut out = String::new();
    for (n, record) in records.iter().enumerate() {
        // A record may be called as BLAST calls those without a name.
        let named =
            record.name.as_ref().map(|name| name.text().trim().replace(' ', "-")).filter(|name| !name.is_empty());
        let name = named.clone().unwrap_or(format!("Query_{}", n + 1));
        writeln!(out, "# BLASTP 2.12.0+\n# Query: {}\n# Database: d", named.unwrap_or_default()).unwrap();
        writeln!(out, "# {} hits found", record.rows.len()).unwrap();
        record.rows().for_each(|row| writeln!(out, "{name}\t{row}").unwrap());
    }
    out + &format!("# BLAST processed {} queries\n", records.len())
}

fn blast_xml(records: &[Record]) -> String {
    let title = |n: usize| records[n].name_or("No definition line");
    let mut out = format!(
        "<?xml version=\"1.0\"?>\n<BlastOutput>\n  <BlastOutput_query-ID>Query_1</BlastOutput_query-ID>\n  \
         <BlastOutput_query-def>{}</BlastOutput_query-def>\n<BlastOutput_iterations>\n",
        title(0)
    );
    for (n, record) in records.iter().enumerate() {
        writeln!(out, "<Iteration>\n  <Iteration_iter-num>{}</Iteration_iter-num>", n + 1).unwrap();
        writeln!(out, "  <Iteration_query-ID>Query_{}</Iteration_query-ID>", n + 1).unwrap();
        writeln!(out, "  <Iteration_query-def>{}</Iteration_query-def>", title(n)).unwrap();
        record.rows().for_each(|row| writeln!(out, "  <Hit_def>{row}</Hit_def>").unwrap());
        if record.rows.is_empty() {
            out.push_str("  <Iteration_message>No hits found</Iteration_message>\n");
        }
        out.push_str("</Iteration>\n");
    }
    out + "</BlastOutput_iterations>\n</BlastOutput>\n\n"
}

fn blast_xml2(records: &[Record]) -> String {
    let search = |(n, record): (usize, &Record)| {
        let rows: String = record.rows().map(|row| format!("    <title>{row}</title>\n")).collect();
        format!("<BlastOutput2>\n    <query-id>Query_{}</query-id>\n{rows}</BlastOutput2>\n", n + 1)
    };
    let searches: Vec<_> = records.iter().enumerate().map(search).collect();
    format!("<?xml version=\"1.0\"?>\n<BlastXML2\n    xmlns=\"x\"\n>\n{}</BlastXML2>\n\n", searches.join("\n"))
}

fn blast_json(records: &[Record]) -> String {
    let search = |(n, record): (usize, &Record)| {
        let rows: String = record.rows().map(|row| format!("      \"title\": \"{row}\"\n")).collect();
        format!("{{\n  \"report\": {{\n      \"query_id\": \"Query_{}\",\n{rows}  }}\n}}\n", n + 1)
    };
    let searches: Vec<_> = records.iter().enumerate().map(search).collect();
    format!("{{\n\"BlastOutput2\": [\n{}]\n}}\n\n", searches.join(",\n"))
}

fn blast_report(records: &[Record]) -> String {
    let mut out = "BLASTP 2.12.0+\n\n\nDatabase: d\n           9 sequences\n\n\n\n".to_owned();
    for record in records {
        writeln!(out, "Query= {}\n\nLength=9\n", record.name_or("")).unwrap();
        record.rows().for_each(|row| writeln!(out, "> {row}").unwrap());
        out.push_str("\nEffective search space used: 9\n\n\n");
    }
    out + "  Database: d\n    Posted date:  x\n\n\n\nMatrix: BLOSUM62\n"
}

fn hmmer_report(records: &[Record]) -> String {
    let rule = "# - - - - - - - - - - - - -\n";
    let mut out = format!("# hmmscan :: search\n{rule}# query sequence file:             q\n{rule}\n");
    for record in records {
        writeln!(out, "Query:       {}  [L=9]", record.name_or("")).unwrap();
        record.rows().for_each(|row| writeln!(out, "  {row}").unwrap());
        out.push_str("//\n");
    }
    out + "[ok]\n"
}

const TRAILER: &str = "#\n# Program:         hmmscan\n# Option settings: hmmscan db q \n# Date:            x\n# [ok]\n";

/// A table whose columns are as wide as the name of the query at hand.
fn hmmer_rows(record: &Record) -> (String, String) {
    let name = record.name_or("-");
    let header = format!("# target name {name:^9}\n#    {} ---\n", "-".repeat(name.len()));
    // A target may begin with the mark of a comment.
    (header, record.rows().map(|row| format!("#{row} {name:9}\n")).collect())
}

fn hmmer_table(records: &[Record]) -> String {
    let rows: String = records.iter().map(|record| hmmer_rows(record).1).collect();
    format!("{}{rows}{TRAILER}", hmmer_rows(&records[0]).0)
}

fn hmmer_sections(records: &[Record]) -> String {
    let sections: String = records.iter().map(|record| [hmmer_rows(record).0, hmmer_rows(record).1].concat()).collect();
    sections + TRAILER
}

/// Writes what `sequence` and `gene` make of the numbers of sequences and genes.
fn prodigal(
    records: &[Record],
    sequence: impl Fn(usize, &str) -> String,
    gene: impl Fn(&str, usize, usize, &str) -> String,
) -> String {
    let mut out = String::new();
    for (n, record) in records.iter().enumerate() {
        let name = record.name_or("n");
        out.push_str(&sequence(n + 1, &name));
        record.rows().enumerate().for_each(|(k, row)| out.push_str(&gene(&name, n + 1, k + 1, &row)));
    }
    out
}

fn sequence_line(n: usize, name: &str) -> String {
    format!("# Sequence Data: seqnum={n};seqlen=9;seqhdr=\"{name}\"\n")
}

fn prodigal_gff(records: &[Record]) -> String {
    let gene = |name: &str, n, k, _: &str| format!("{name}\tProdigal\tCDS\t1\t9\t1.0\t+\t0\tID={n}_{k};partial=00\n");
    format!("##gff-version  3\n{}", prodigal(records, sequence_line, gene))
}

fn prodigal_gbk(records: &[Record]) -> String {
    let sequence = |n, name: &str| format!("DEFINITION  seqnum={n};seqlen=9;seqhdr=\"{name}\"\n");
    prodigal(records, sequence, |_, n, k, _| {
        format!("     CDS             1..9\n                     /note=\"ID={n}_{k};partial=00\"\n")
    })
}

fn prodigal_sequences(records: &[Record]) -> String {
    prodigal(records, sequence_line, |_, _, k, _| format!(">{k}_1_9_+\n"))
}

fn prodigal_genes(records: &[Record]) -> String {
    prodigal(
        records,
        |_, _| String::new(),
        |name, n, k, _| format!(">{name}_{k} # 1 # 9 # 1 # ID={n}_{k};partial=00\nMKV\n"),
    )
}

fn diamond_xml(records: &[Record]) -> String {
    let mut out = "<?xml version=\"1.0\"?>\n<BlastOutput>\n<BlastOutput_iterations>\n".to_owned();
    for (n, record) in records.iter().enumerate().filter(|(_, record)| !record.rows.is_empty()) {
        writeln!(out, "<Iteration>\n  <Iteration_iter-num>{}</Iteration_iter-num>", n + 1).unwrap();
        writeln!(out, "  <Iteration_query-ID>Query_{}</Iteration_query-ID>", n + 1).unwrap();
        record.rows().for_each(|row| writeln!(out, "  <Hit_def>{row}</Hit_def>").unwrap());
        out.push_str("</Iteration>\n");
    }
    out + "</BlastOutput_iterations>\n</BlastOutput>"
}

/// Molecules, of which those without a row are none.
fn molecules(records: &[Record]) -> Vec<String> {
    let molecule = |record: &Record| record.rows().map(|row| format!("ATOM {row}\n")).collect::<String>();
    records.iter().map(molecule).filter(|molecule| !molecule.is_empty()).collect()
}

fn obabel_mol(records: &[Record]) -> String {
    molecules(records).join("$$$$\n")
}

fn obabel_models(records: &[Record], end: &str) -> String {
    let molecules = molecules(records);
    if let [alone] = &molecules[..] {
        return format!("{alone}{end}");
    }
    let model = |(n, text): (usize, &String)| format!("MODEL {:8}\n{text}ENDMDL\n", n + 1);
    let models: String = molecules.iter().enumerate().map(model).collect();
    if models.is_empty() { models } else { models + end }
}

fn obabel_pdb(records: &[Record]) -> String {
    obabel_models(records, "END\n")
}

fn obabel_pdbqt(records: &[Record]) -> String {
    obabel_models(records, "")
}

fn obabel_cml(records: &[Record]) -> String {
    let (xml, space) = ("<?xml version=\"1.0\"?>\n", " xmlns=\"http://www.xml-cml.org/schema\"");
    let atoms: Vec<_> =
        molecules(records).iter().map(|text| format!("<atom>{}</atom>\n", text.replace('\n', "-"))).collect();
    if let [atom] = &atoms[..] {
        return format!("{xml}<molecule{space}>\n {atom}</molecule>\n");
    }
    let all: String = atoms.iter().map(|atom| format!(" <molecule>\n  {atom} </molecule>\n")).collect();
    if all.is_empty() { all } else { format!("{xml}<cml{space}>\n{all}</cml>\n") }
}

fn vina_batch(records: &[Record]) -> String {
    let count =
        if records.len() > 1 { format!("Ligands (batch mode): {} molecules\n", records.len()) } else { String::new() };
    format!(
        "AutoDock Vina\n{count}Grid center: 0\nComputing Vina grid ... done.\n{}",
        lines(records).collect::<String>()
    )
}

fn vina_each(records: &[Record]) -> String {
    records
        .iter()
        .map(|record| {
            format!("AutoDock Vina\nReading ... done.\n{}", lines(std::slice::from_ref(record)).collect::<String>())
        })
        .collect()
}

const TOOLS: [(&str, Tool); 30] = [
    ("header", headed),
    ("header:^#", commented),
    ("footer:^# [ab]$", footed),
    ("header\nfooter:2", framed),
    ("header\ntotals:^# ([0-9]+) of ([0-9]+)$", totalled),
    ("csv", csv),
    ("csv\nunbroken", csv),
    ("sam", sam),
    ("jsonl", jsonl),
    ("xml:r", xml),
    ("blast-tabular:columns=1,unnamed", blast_one_name),
    ("blast-tabular:columns=2,unnamed", blast_two_names),
    ("blast-comments:columns=1", blast_comments),
    ("blast-xml", blast_xml),
    ("blast-xml2", blast_xml2),
    ("blast-json", blast_json),
    ("blast-report", blast_report),
    ("hmmer-report", hmmer_report),
    ("hmmer-table", hmmer_table),
    ("hmmer-sections", hmmer_sections),
    ("prodigal:gff", prodigal_gff),
    ("prodigal:gbk", prodigal_gbk),
    ("prodigal:sequences", prodigal_sequences),
    ("prodigal:genes", prodigal_genes),
    ("diamond-xml", diamond_xml),
    ("obabel-mol", obabel_mol),
    ("obabel-pdb", obabel_pdb),
    ("obabel-pdbqt", obabel_pdbqt),
    ("obabel-cml", obabel_cml),
    ("vina-log", vina_each),
];

fuzz_target!(|case: Case| {
    if case.records.is_empty() {
        return;
    }
    let chosen = usize::from(case.tool) % (TOOLS.len() + 1);
    let batched = format!("vina-log:n={}", case.records.len());
    let (spec, tool) = TOOLS.get(chosen).copied().unwrap_or((&batched, vina_batch));
    let mut ends: Vec<_> = case.cuts.iter().map(|cut| usize::from(*cut) % case.records.len()).collect();
    ends.extend([0, case.records.len()]);
    ends.sort_unstable();
    ends.dedup();
    let outputs: Vec<_> =
        ends.windows(2).map(|pair| ((pair[1] - pair[0]) as u64, tool(&case.records[pair[0]..pair[1]]))).collect();
    let blocks: Vec<_> = outputs.iter().map(|(n, output)| (*n, output.as_bytes())).collect();
    let joined = join_blocks(spec, &blocks, 1 + usize::from(case.bite));
    let whole = tool(&case.records);
    assert!(
        joined.as_deref() == Ok(whole.as_bytes()),
        "{spec}: {}\nbecame {}",
        show(whole.as_bytes()),
        joined.map_or_else(|error| error, |joined| show(&joined))
    );
});
