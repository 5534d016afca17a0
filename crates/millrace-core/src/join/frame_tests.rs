//! Every way in which batches may begin and end, against what one run would have written.

use crate::join::joiner;

/// The joined output, or what is wrong; each block is read in bites of seven bytes.
fn join(spec: &str, blocks: &[&str]) -> Result<String, String> {
    let mut joiner = joiner(spec).map_err(|error| error.to_string())?;
    let mut out = Vec::new();
    for block in blocks {
        let mut bites = std::io::BufReader::with_capacity(7, block.as_bytes());
        joiner.block(1, &mut bites, &mut out).map_err(|error| error.to_string())?;
    }
    joiner.finish(&mut out).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn joined(spec: &str, blocks: &[&str]) -> String {
    join(spec, blocks).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn refused(spec: &str, blocks: &[&str], expected: &str) {
    match join(spec, blocks) {
        Ok(out) => panic!("{spec}: joined to {out:?}"),
        Err(error) => assert!(error.contains(expected), "{spec}: {error}"),
    }
}

#[test]
fn first_header_is_kept() {
    assert_eq!(joined("header", &["h\na\n", "h\nb\nc\n"]), "h\na\nb\nc\n");
    assert_eq!(joined("header:2", &["h\ni\na\n", "h\ni\n"]), "h\ni\na\n");
    assert_eq!(joined("header:^#", &["#h\n#i\na\n#x\n", "#h\n#i\nb"]), "#h\n#i\na\n#x\nb");
    assert_eq!(joined("header", &["h\r\na\r\n", "h\r\nb\r\n"]), "h\r\na\r\nb\r\n");
    assert_eq!(joined("header:^#$", &["#\r\na\r\n", "#\r\nb\r\n"]), "#\r\na\r\nb\r\n");
}

#[test]
fn a_blank_line_where_columns_change_is_no_row() {
    let quoted = "h\n\"x\n\ny\"\n";
    assert_eq!(joined("csv\nunbroken", &[quoted, "h\nb\n"]), "h\n\"x\n\ny\"\nb\n");
    assert_eq!(joined("header\nunbroken", &["h\n\"\n", "h\nb\n"]), "h\n\"\nb\n");
    for blocks in [["h\na\n\nz\nb\n", "h\n"], ["h\na\n", "h\na\n\r\n"]] {
        refused("csv\nunbroken", &blocks, "columns change");
        refused("unbroken\nheader", &blocks, "columns change");
    }
    refused("header\nunbroken", &["h\n\"a\n\n", ""], "columns change");
    refused("csv\nunbroken", &["h\n5\" a\n\nz\n", "h\nb\n"], "columns change");
}

#[test]
fn headers_may_be_as_wide_as_the_names_below_them() {
    assert_eq!(joined("header-first:2", &["#h\n#-\na\n", "#h  \n#---\n", "#h \n#--\nlong\n"]), "#h\n#-\na\nlong\n");
    refused("header-first:2", &["#h\n#-\na\n", "#h\n"], "ends within its header");
    refused("header-first:2", &["#h\n#-\n", ""], "no output at all");
}

#[test]
fn what_was_added_to_the_command_is_taken_out_of_header_and_footer() {
    let spec = "restore:^#C:.*( -t [0-9]+)$\t\nheader:^#";
    assert_eq!(joined(spec, &["#C:x -t 2\na -t 2\n", "#C:x -t 16\nb\n"]), "#C:x\na -t 2\nb\n");
    assert_eq!(joined("header\nfooter\nrestore:n=([0-9])\t7", &["h\na\nn=0\n", "h\nn=1\n"]), "h\na\nn=7\n");
    assert_eq!(joined(spec, &["", "#C:x -t 2\na\n"]), "#C:x\na\n");
    refused(spec, &["#C:x -t 2 y\na\n"], "no line of its header or footer matches");
    for wrong in ["restore:^#( -t)", "restore:^#\tx", "restore:(\tx", "restore"] {
        assert!(joiner(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_was_added_to_the_command_is_taken_out_of_the_output_of_no_record() {
    let alone = |spec: &str, block: &str| {
        let mut joiner = joiner(spec).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        joiner.block(0, &mut block.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        joiner.finish(&mut out).map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&out).into_owned())
    };
    let spec = "restore:^#C:.*( -t [0-9]+)$\t\nheader:^#\nfooter";
    assert_eq!(alone(spec, "#C:x -t 2\n").as_deref(), Ok("#C:x\n"));
    assert_eq!(alone(spec, "no frame\n#C:x -t 2\nno end").as_deref(), Ok("no frame\n#C:x\nno end"));
    assert_eq!(alone(spec, "").as_deref(), Ok(""));
    assert!(alone(spec, "#C:x\n").is_err_and(|error| error.contains("no line of its header or footer matches")));
    assert_eq!(alone("header:2\nfooter", "x").as_deref(), Ok("x"));
}

#[test]
fn totals_of_batches_are_added_up() {
    let spec = "header\ntotals:^# ([0-9]+) of ([0-9]+)$";
    assert_eq!(joined(spec, &["h\na\n# 1 of 9\n", "h\n# 0 of 8\n", "h\nb\n# 2 of 1\n"]), "h\na\nb\n# 3 of 18\n");
    assert_eq!(joined("totals:^# (\\d+)", &["a\n# 7 x\n# 1\n", "# 3 x\n# 2\n"]), "a\n# 10 x\n# 3\n");
    refused(spec, &["h\n# 1 of 9\n", "h\n# 1 of 9\n# 1 of 9\n"], "have 2 and 4 numbers");
    refused(spec, &["h\n# 1 of 9\n", "h\n# 18446744073709551615 of 9\n"], "cannot be added up");
    refused("totals:^n (.+)$", &["a\nn 1.5\n"], "'1.5' is no number");
    refused("totals:^((n)) ", &["a\nn 1\n"], "'n' is no number");
    refused("totals:^n (\\d+)$", &["a\nn 007\n"], "'007' is no number");
    refused("totals:^n 0*(\\d+)$", &["a\nn 007\n"], "'7' is no number");
    refused("totals:^n (\\d)\\d*$", &["a\nn 17\n"], "'1' is no number");
    refused("totals:^n +(\\d+)$", &["a\nn   7\n"], "'7' is no number");
    refused("totals:^n (\\d+) ", &["a\nn 7  x\n"], "'7' is no number");
    refused("totals:^n (\\d+)", &["a\nn 1.5\n"], "'1' is no number");
    refused("totals:^n (\\d+)( of (\\d+))?$", &["a\nn 7\n"], "is missing");
    assert_eq!(joined("totals:^n: ?(\\d+)", &["n:0.\n", "n:12.\n"]), "n:12.\n");
    refused("totals:^# (\\d+)", &["# 1 x\n", "# 1 y\n"], "the footer differs between batches");
    for wrong in ["totals", "totals:^#", "totals:("] {
        assert!(joiner(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn no_batch_and_empty_batches() {
    for spec in ["header", "footer", "csv", "sam", "jsonl", "xml:r", "header\nfooter"] {
        assert_eq!(joined(spec, &[]), "", "{spec}");
        assert_eq!(joined(spec, &["", ""]), "", "{spec}");
    }
    // A program that writes its header with its first line.
    assert_eq!(joined("header", &["", "h\na\n", "", "h\nb\n"]), "h\na\nb\n");
    // A program that writes its header always.
    assert_eq!(joined("csv", &["h\n", "h\na\n", "h\n"]), "h\na\n");
    assert_eq!(joined("csv", &["h", "h"]), "h");
    // Both cannot be.
    for blocks in [["h\n", ""], ["", "h\n"]] {
        refused("header", &blocks, "no output at all");
    }
}

#[test]
fn headers_that_differ_are_refused_with_their_line() {
    refused(
        "header:2",
        &["h\nn=1\na\n", "h\nn=2\nb\n"],
        "the header differs between batches at its line 2: 'n=1' and 'n=2'",
    );
    refused("header:^#", &["#h\na\n", "b\n"], "'#h' and ''");
    refused("csv", &["h\na\n", "h"], "differs");
    refused("header:3", &["h\na\n"], "ends within its header, after 2 lines");
    refused("sam", &["@SQ\tSN:a\nr\n", "@SQ\tSN:b\nr\n"], "'@SQ\tSN:a' and '@SQ\tSN:b'");
}

#[test]
fn footer_stands_once_at_the_end() {
    assert_eq!(joined("footer", &["a\nend\n", "b\nc\nend\n", "end\n"]), "a\nb\nc\nend\n");
    assert_eq!(joined("footer:2", &["a\nx\ny", "b\nx\ny"]), "a\nb\nx\ny");
    assert_eq!(joined("footer:^--", &["a\n--\nb\n--\n-- end\n", "c\n--\n-- end\n"]), "a\n--\nb\nc\n--\n-- end\n");
    assert_eq!(joined("header\nfooter:^--", &["h\na\n--\n", "h\n--\n", "h\nb\n--\n"]), "h\na\nb\n--\n");
    refused("footer:^#", &["a\n# 1 hit\n", "b\n# 2 hits\n"], "the footer differs between batches at its line 1");
    refused("footer:3", &["a\nb\n"], "ends within its footer, after 2 lines");
    refused("footer", &["", "end\n"], "no output at all");
}

#[test]
fn lines_are_not_glued() {
    for spec in ["header:^#", "jsonl", "footer:^#"] {
        refused(spec, &["{1}\n{2}", "{3}\n"], "has no line end");
        assert_eq!(joined(spec, &["{1}\n", "{2}"]), "{1}\n{2}");
    }
}

#[test]
fn csv_header_may_have_line_ends_in_quotes() {
    assert_eq!(joined("csv", &["a,\"b\nb\"\n1,2\n", "a,\"b\nb\"\n3,\"4\n4\"\n"]), "a,\"b\nb\"\n1,2\n3,\"4\n4\"\n");
}

#[test]
fn sam_header_ends_with_the_first_alignment() {
    let head = "@HD\tVN:1.6\n@SQ\tSN:c\tLN:9\n@PG\tID:x\n@CO\tword\n";
    assert_eq!(
        joined("sam", &[&format!("{head}r1\t4\n"), &format!("{head}@r2\t4\n"), head]),
        format!("{head}r1\t4\n@r2\t4\n")
    );
}

#[test]
fn json_lines_are_objects() {
    assert_eq!(joined("jsonl", &["{\"a\": NaN}\n", "", " {}\n"]), "{\"a\": NaN}\n {}\n");
    for block in ["[1, 2]\n", "[\n", "{\n", "\n"] {
        refused("jsonl", &[block], "no JSON object");
    }
}

#[test]
fn xml_is_opened_and_closed_once() {
    let open = "<?xml version=\"1.0\"?>\n<!-- a > b -->\n<r v=\"1\">\n";
    let block = |text: &str| format!("{open}{text}  </r>\n</doc>\n");
    let (a, b) = (block(" <h/>\n"), block(" <h>x</h>\n <rr/>\n"));
    assert_eq!(joined("xml:r", &[&a, &b]), block(" <h/>\n <h>x</h>\n <rr/>\n"));
    assert_eq!(joined("xml:r", &["<r><h/></r>", "<r><h>1</h></r>"]), "<r><h/><h>1</h></r>");
    // The same name within.
    assert_eq!(
        joined("xml:r", &["<r>\n<h><r>1</r></h>\n</r>\n", "<r>\n<h><r/></h>\n</r>\n"]),
        "<r>\n<h><r>1</r></h>\n<h><r/></h>\n</r>\n"
    );
}

#[test]
fn empty_xml_elements_add_nothing() {
    for empty in ["<r/>\n", "<r></r>\n", "<r>\n</r>\n", "<r />"] {
        assert_eq!(joined("xml:r", &[empty, empty]), empty);
        assert_eq!(joined("xml:r", &[empty, "<r>\n <h/>\n</r>\n", empty]), "<r>\n <h/>\n</r>\n");
        refused("xml:r", &[empty, ""], "no output at all");
    }
}

#[test]
fn xml_that_is_not_one_element_is_refused() {
    let good = "<r>\n<h/>\n</r>\n";
    refused("xml:r", &["<q/>\n"], "without <r>");
    refused("xml:r", &["<r>\n<h/>\n"], "without </r>");
    refused("xml:r", &["</r>\n"], "</r> without <r>");
    refused("xml:r", &["<d><r>1</r><r>2</r></d>\n"], "several <r>");
    refused("xml:r", &["<d><r/><r>2</r></d>\n"], "several <r>");
    refused("xml:r", &[good, "<r n=\"2\">\n<h/>\n</r>\n"], "the beginning differs");
    refused("xml:r", &[good, "<r>\n<h/>\n</r><!-- 2 -->\n"], "the end differs");
}

#[test]
fn wrong_words_are_refused() {
    let wrong =
        ["header:(", "header:0", "footer:99999", "csv:1", "sam:x", "jsonl:", "xml", "xml:a b", "tsv", "header\nxml:r"];
    for spec in wrong {
        refused(spec, &[], "unknown join");
    }
}

#[test]
fn a_header_without_end_is_not_kept() {
    let block = format!("#{}\n", "more".repeat(1000)).repeat(1100);
    refused("header:^#", &[&block], "has no end");
    refused("footer:^#", &[&block], "has no end");
}

#[test]
fn frame_is_that_of_the_present_form() {
    let forms = |blocks: &[(u32, &str)]| {
        let mut joiner = joiner("header:^@\nfooter:^!").unwrap_or_else(|error| panic!("{error}"));
        let mut out = Vec::new();
        for (form, block) in blocks {
            joiner.set_form(*form);
            joiner.block(1, &mut block.as_bytes(), &mut out).map_err(|error| error.to_string())?;
        }
        joiner.finish(&mut out).map_err(|error| error.to_string())?;
        Ok::<_, String>(String::from_utf8_lossy(&out).into_owned())
    };
    let blocks = [(0, "@now\na\n!now\n"), (1, "@was\nb\n!was\n"), (0, "@now\nc\n!now\n")];
    assert_eq!(forms(&blocks), Ok("@now\na\nb\nc\n!now\n".to_owned()));
    let other = [(0, "@now\na\n!now\n"), (1, "@was\nb\n!was\n"), (1, "@odd\nc\n!was\n")];
    assert!(forms(&other).is_err_and(|error| error.contains("'@was' and '@odd'")));
    assert!(forms(&blocks[1..]).is_err_and(|error| error.contains("under other paths")));
    assert!(forms(&[(0, ""), (1, "@was\nb\n!was\n")]).is_err_and(|error| error.contains("under other paths")));
}
