"""One-liners that are believed write the same for each part of the lines; all others want ``--independent``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.adapters.one_liners import is_certainly_by_line, is_script_command

pytestmark = pytest.mark.process

LINES = [
    "r1 4 a,b,c\n", "##FASTA\n", ">s1 x y\n", "r2 17 b\n", "\n", "r3 5 c/d a=1\n", ">s2\n", "r1 2 a,b\n", "# no 9 10\n", "1 2 3\n",
]  # fmt: skip

#: What people type, and is believed.
BELIEVED = {
    "awk": r"""
        1
        $2 > 4
        NF > 2 && $1 ~ /^r/
        !/^#/ { print $1 }
        { print $3, $1 }
        { print $2 / 2, -$2, $2 - 1, $2 % 3 ^ 2 }
        $1 == "r1" || $2 < 5 && !($3 ~ /[ac]/ || /\/x/) { print $NF }
        BEGIN { FS = OFS = "\t" } { $1 = $1 } 1
        BEGIN { OFS = FS; ORS = "|" } { print $1, $2 }
        /^>/ { print substr($0, 2); next } { print length($0) }
        { if ($2 > 5) print "high"; else print "low" }
        { if (NF) { $2 = toupper($1); $NF = "x" } print }
        { gsub(/a\/b|[[:digit:]]/, "x"); sub(/r/, "&&", $1); print }
        { printf "%s\t%d\n", $1, $2 * 2 } # twice
        { print (($2 > 5) ? "a" : "b") }
        { print length, index($0, "a"), sprintf("%03d", $2) }
        { $2 += 3; $2 *= 2; print $2 $1 "NR" }
        length > 5
        match($0, /a+/)
    """,
    "sed": r"""
        s/a/b/
        /^#/d
        s/>/>x/;s/ .*//
        y/abc/def/
        s|c/d|q|g
        /r/!s/a/b/p
        /a/{s/1/y/;/2/d}
        s/a/1,2q/
        s/\//|/g;p
        /a,b/s/1,*/z/I
        s/[[:space:]]/_/g; s,[^/]*,x,
        s#^#a=1 #
    """,
    "perl": r"""
        s/a/b/
        s/(r)(\d)/$2-$1/g; print
        print if /^r\d+ /
        print unless /a$|\$/i
        next if /^#/; tr/a-z/A-Z/; print
        s/(?:r)+(\d)/<$&>/; print;
    """,
    "jq": r"""
        .
        .n + 1
        {id, input: .n}
        select(.n > 2 and (.id | test("^r"))) | [.id, .n] | @tsv
        "\(.id): \(.n)"
        if .n > 3 then .id else empty end
        [.tags[]? | ascii_upcase] | sort | join(",")
        .id as $x | {$x, n: (.n // 0)}
    """,
}

#: What keeps something from line to line, or counts lines.
CARRIED = {
    "awk": r"""
        /^#/ { print; next } { print | "sort" }
        { cmd = "cat"; print | cmd }
        { print |& "cat" }
        /a/ { on = 1 } on
        /a/,/b/
        { s += $2; print $1, s }
        { print prev; prev = $1 }
        !seen[$1]++
        { if ($1 in seen) next; seen[$1] = 1; print }
        { a[$1] = $2 } /1/ { print a["r1"] }
        { if ($1 == "r1") x = 5; print x }
        { if ($1 == "r1") { x = 5 } print x }
        { if ($1) { x = 1 } } { if ($2) { print x } }
        { getline; print }
        { FS = ":"; print $1 }
        /##FASTA/ { exit } { print }
        { print rand() }
        function f() { g = g "x"; return g } { print f() }
        BEGIN { n = 3 } n-- > 0
        function count(names) { names[$1]++ } { count(seen); print seen[$1] }
        NR == 3
        { n = $1 } END { print n }
        { do x = x "a"; while (0); print x }
        $1 in s { next } { s[$1]; print }
        /FASTA/ { match($0, /F/) } { print RSTART }
        { if (/r/ ? split($3, n, ",") > 1 : n[1] ~ /a/) print $1 }
        { for (m = 1; m < 3 && (/r/ ? match($3, /a/) : RSTART); m++) { print; break } }
        { print /r/ ? match($3, /a/) : 0, RSTART }
        /r/ && match($3, /a/) || RSTART
        /r/ || match($3, /a/) ? RSTART : 0
        !($1 in s) { print; s[$1] }
        { s[$1]; if (length(s) > 2) print }
        ($1 in s) == 0 { print s[$1] $1 }
        { if ($1 in s) print; else print s[$1] "new" }
        { if ($1 in s) print "old"; print s[$1] }
        { if (!($1 in s)) print s[$1] "new" }
        $1 in s || s[$1] == "" { print }
        $1 in s { $1 = "x"; print s[$1] } { print "x" in s }
        { sub(/1/, "y", $2); OFS = "-"; print }
        { NF = 2; print NF, $0 } /FASTA/ { OFS = "-" }
        { s[$1]; for (k in s) print k }
        { s[$1] } ($1, $2) in s
        function has(a) { return $2 in a } { s[$1]; print has(s) }
        /FASTA/ { OFS = "-" } { print $1, $2 }
        { print $1, $2; OFS = "-" }
        { $2 = "x"; OFS = "-"; print }
        /FASTA/ { ORS = ";" } 1
        { if (/FASTA/) OFMT = "%.2f"; print $2 / 3 }
        /FASTA/ { CONVFMT = "%d" } { x = $2 / 3 ""; print x }
        /FASTA/ { SUBSEP = "-" } { print 1, 2 }
        function f() { OFS = "-" } /FASTA/ { f() } { print $1, $2 }
        { f(); OFS = "-" } function f() { print $1, $2 }
        { f(); x = $1 } function f() { print x }
        /FASTA/ { ENVIRON["x"] = 1 } { print ENVIRON["x"] }
        /FASTA/ { PROCINFO["sorted_in"] = "@ind_str_asc" } { print }
        /FASTA/ { SYMTAB["x"] = 1 } { print x }
        ENDFILE { print "end" } { print }
        { if (/r1/) split($3, n, ","); print n[1] }
        !seen[$1][$2]++
        { if (!($2 in s[$1])) print; s[$1][$2] }
        { switch ($1) { case /#/: break; default: if (!seen[$2]++) print } }
        { r = $2++ / 2; if (!seen[$2]++) print $1, r / 3 }
        BEGIN { s["x"] = "" } { if (gsub(/./, "&", s[$2])) next; sub(/^/, "k", s[$2]); print }
        BEGIN { split("a b", c["x"]) } { print c["x"][1]; split($0, c["x"]) }
        { print prev (" " $0); prev = $1 }
        { s = s ($2 > 3 ? "H" : "L"); print s }
        { print ++n (") " $0) }
        { for (k = 1; k <= NF; sep = ",") printf "%s%s", sep, $(k++); print "" }
        { split($0, a, a[2]); print a[1] }
        { print | "sort"; if (/s1/) close("sort") }
        { print | "sort"; close("cat") }
        { print $1 > "out"; close("out") }
        BEGIN { for (k = 0; k < 3; k++) { a[k] = k } getline } { print $1 }
        { print 1x; x = $1 }
        { print srand(5) }
        { print systime() }
        { f = "g"; @f($1) }
        { if (/r1/) delete n; n[$2] = 1; for (k in n) print k }
        /r1/ && split($3, n, ",") { print "r1" } { print n[1] }
        /##FASTA/ || match($0, /,/) { print RSTART }
        !(/,/ && match($0, /,/)) { print RSTART }
        { x = /,/ ? match($0, /,/) : 0; print RSTART }
        { split($3, n, ","); for (k in n) x = 1; print k }
        { while ($2 > 4) { x = $2; $2 = 0 } print x }
    """,
    "sed": r"""
        /a/,/b/p
        1,5d
        $d
        /##FASTA/,$d
        /r2/q
        N;s/\n/ /
        /a/h;/b/{x;p}
        1~2d
        s/a/b/;=
        0,/r/s//y/
        :a $!{N;ba}; s/\n/,/g
        ta $!N;:a
    """,
    "perl": r"""
        (/r/ ? $a1 : $b1) = 5; print $a1
        (/r/ ? $a1 : $b1) .= "x"; print $a1
        (/r/ ? $a1 : $b1)++; print $a1
        ((/r/) == 1 ? $a1 : $b1)++; print $a1
        (/r/ ? $a1 : $b1) =~ s/^/x/; print $a1
        $h //= $_ if /r2/; print $h
        $h{1} //= $_; print $h{1}
        print sprintf("%d\n", $c += 1)
        my $z = ($c += 1); print $z
        print abs($c -= 1)
        print $ENV{A}; $ENV{A} = $_
        print $0; $0 = $_
        print $zz; ${"zz"} = $_
        print $zz; $$ref = $_
        print $_{x}; $_{x} = $_
        select STDERR if /r2/; print
        open STDOUT, ">/dev/null" if /r2/; print
        *x = sub { "y" } if /r2/; print defined &x
        eval 'print $x; $x = $_'
        /(r2)/; print "$-[0]\n"
        print if /a/ .. /b/
        print if /a/../b/
        $n++; print if $n % 2
        /r1/ and my @a = split; print "@a"; @a = split if !$k
        my $k = 1 if /r1/; print $k; $k = $_
        unless (/a/) { my $x = 1 } print $x; $x = $_
        for my $x (1..2) { print $x } print $x; $x = $_
        if (my ($c) = /(\d)/) { print $c } else { print "-" } print $c; $c = $_
        @a = map { $_ . "x" } split unless /r2/; print @a
        print $#a; @a = split
        @a = map { "$a[0]$_" } split; print @a
        last if /FASTA/; print
        print if !$seen{$_}++
        push @a, $_; print "@a"
        if (/^>/) { $id = $_ } else { print $id, $_ }
        print $p; $p = $_
        $on = 1 if /a/; print if $on
        s/x/$n++/e; print
        print rand
        print if $. > 3
        $n++; END { print $n }
        ($c, $d) = split / / if /FASTA/; print $c
        if (/FASTA/) { ($c, $d) = split / / } print $d
        /(FASTA)/; print "$1\t$_"
        print $1 unless /(FASTA)/
        if (/(FASTA)/) { print } else { print $1 }
        /(FASTA)/ or print $1
        if (!/(FASTA)/) { print $1 }
        print $& . $_; /FASTA/
        s/(FASTA)/x/; print "$1 $_"
        /FASTA/; print $-[0]
        print /(FASTA)/ ? "x" : $1
        next unless /a/ || /(FASTA)/; print $1
        /(FASTA)/; print $+{x}
        $, = "-" if /FASTA/; print 1, 2
        if (/FASTA/) { $\ = "x" } print
        print 1, 2; $, = "-"
        $/ = ">" if /FASTA/; print
        /FASTA/ and $" = "-"; @a = (1, 2); print "@a"
        $; = "-" if /FASTA/; print join ",", %h
        $x = 1 if /b/; undef $x if /FASTA/; print $x
        BEGIN { $x = 1 } undef $x if /FASTA/; print $x
        push @{$s{x}}, $_; print @{$s{x}}
        print if !$::s{$_}++
        print if !$main::s{$_}++
        print if !$Foo::s{$_}++
        print if m?a?
        BEGIN { %w = ("r1 4 a,b,c" => 1) } chomp; print if delete $w{$_}
        BEGIN { sub seen { $s{$_[0]}++ } } print unless seen($_)
        BEGIN { <> } print
        print unless exists $s{$_}; my $t = $s{$_}{z}
        print $.+1
        s/^/$._/; print
        print "$_ " for @prev; print; @prev = split
        for (my $k = 0; $k < $n; $k++) { print $k } $n = length
        /g1(.)/; print "$`|$'"
        print if /r/; s//Q/
        if (//) { print } /r/ && print "f"
        /(r.)/; print "$^N\n"
        print "@-\n"; /a/
        print $F{$_}++
        $_++ for @a; print @a
        read(STDIN, $x, 1); print $x
        print $x; my $x = 1; $x = $_ if /a/; $y = $x; print $y if /b/
        /(?{ $c++ })/; print $c
        BEGIN { $x = "abc" } chop $x; print $x
        $#a++; print scalar @a
        print @$s; @$s = (1)
    """,
}

#: Other refused ones: what is not in the grammar, whatever it does.
DOUBTFUL = {
    "awk": ["NR > 1", "FNR == 1", "{ x = $1; print x }", "{ print > $1 }", "{ print >> \"o\" }", "{ NF = 2 } 1", "END { print }", "BEGIN { print 1 } 1",
            "BEGIN { x = 1 } 1", "{ $2++ } 1", "{ getline } 1", "$1 ~ /a/, $1 ~ /b/", "{ print FILENAME }", "{ system(\"date\") }", "", "{ print \"a\" | \"cat\" }",
            "BEGIN { RS = \"\" } 1", "{ print $1", "function f(a) { return a } { print f($1) }", "{ for (i = 1; i < NF; i++) print $i }", "length /NR/ 2"],
    "sed": ["1d", "$d", "=", "s//x/", "//d", "s/a/b/e", "s/a/b/w out", "/a/w out", "n", "N", "/a/,/b/d", "/a/,+1d", "0~2d", "s/a/b/2;q", "F", "i\\x", "", "s/a/b/;$!d"],
    "perl": ["s//x/", "s/a/$x/", "s/a/b/e", "print $1", "print if $. == 1", "s/$x/y/", "s/@a/y/", "print if m?a?", "last", "s/(?{$n++})a/b/", ""],
    "jq": ["input", "[., inputs]", "input_line_number", "halt", "now", "first(inputs)", "[1, input, 2]", "\"\\(input)\"", "$__loc__", "debug", "{a: input}", ""],
}  # fmt: skip
OBJECTS = [
    '{"id":"r1","n":4,"tags":["b","a"]}\n',
    '{"id":"x","n":1}\n',
    '{"id":"r2","n":7,"tags":[]}\n',
    '{"id":"r3"}\n',
]
OPTIONS = {"perl": ["-ne"], "jq": ["-c"]}


def believes(tool: str, script: str, options: list[str] | None = None) -> bool:
    """Tell whether a script is believed, as it is typed with its file behind it."""
    arguments = [*(OPTIONS.get(tool, []) if options is None else options), script, "in"]
    return is_certainly_by_line(tool, arguments, ["in"], lambda name: "")


def run_script(tool: str, script: str, lines: list[str]) -> subprocess.CompletedProcess[bytes]:
    command = [tool, *OPTIONS.get(tool, []), script]
    return subprocess.run(command, input="".join(lines).encode(), capture_output=True, check=False, timeout=300)


def is_same_in_parts(tool: str, script: str) -> bool:
    lines = OBJECTS if tool == "jq" else LINES
    whole = run_script(tool, script, lines)
    parts = [run_script(tool, script, [line]) for line in lines]
    return whole.returncode == 0 and whole.stdout == b"".join(part.stdout for part in parts)


def scripts_of(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(tool, line.strip()) for tool, text in table.items() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(("tool", "script"), scripts_of(BELIEVED))
def test_accepted_script_writes_same_bytes_in_parts(tool: str, script: str) -> None:
    assert believes(tool, script)
    assert is_same_in_parts(tool, script)


@pytest.mark.parametrize(
    ("tool", "script"), [*scripts_of(CARRIED), *((tool, each) for tool, some in DOUBTFUL.items() for each in some)]
)
def test_script_outside_the_grammar_is_rejected(tool: str, script: str) -> None:
    assert not believes(tool, script)


def test_options_and_files_are_parsed_as_by_the_tools(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("s/a/b/\n/x/d\n")
    (tmp_path / "p.awk").write_text("# names\n/r/ {\n  print $1\n}\n")
    (tmp_path / "late").write_text("/a/q\n")

    def by_line(tool: str, *arguments: str) -> bool:
        return is_certainly_by_line(tool, arguments, ["in"], lambda name: (tmp_path / name).read_text())

    assert by_line("sed", "-n", "-e", "p", "in") and by_line("sed", "in", "-nE", "-e", "s/(a)/b/p")
    assert by_line("sed", "-f", "s", "in") and by_line("sed", "-nfs") and by_line("awk", "-f", "p.awk", "in")
    assert by_line("awk", "-F,", "-v", "least=5", "$2 > least", "in") and by_line(
        "awk", "-F", ":", "-vOFS=-", "{print $1, $2}", "-"
    )
    assert by_line("perl", "-lne", "print if /a/", "in") and by_line("jq", "-c", "--arg", "v", "x", "select(.a == $v)")
    assert by_line("bioawk", "-tc", "fastx", '{print ">" $name; print revcomp($seq)}', "in") and by_line(
        "bioawk", "-cbed", "$end > 9", "in"
    )
    for tool, *arguments in (
        ("bioawk", "-c", "fastx", "!seen[$seq]++", "in"), ("bioawk", "-tc", "fastx", "NR % 2", "in"), ("bioawk", "-c", "header", "{print $id}", "in"),
        ("bioawk", "-c", "fastx", "{name = 1; print name}", "in"), ("bioawk", "-c", "fastx", "{gsub(/A/, 1, seq); print seq}", "in"), ("awk", "-t", "1", "in"),
        ("sed", "-f", "late", "in"), ("sed", "-i", "p", "in"), ("sed", "-z", "p", "in"), ("sed", "-s", "p", "in"), ("sed", "p", "in", "other"),
        ("sed", "p", "other"), ("sed", "-e", "p", "-e", "1d", "in"), ("sed", "--expression=1d", "in"), ("awk", "1", "other", "in"), ("awk", "1", "x=1", "in"),
        ("awk", "-v", "RS=;", "1", "in"), ("awk", "-vNF=2", "1", "in"), ("gawk", "-i", "inplace", "1", "in"), ("awk", "-v", "x=a", '{sub(/a/, "b", x)} 1', "in"),
        ("perl", "-0pe", "s/a/b/", "in"), ("perl", "-pie", "s/a/b/", "in"), ("perl", "-Mx", "-ne", "print", "in"), ("perl", "-ne", "print", "in", "other"),
        ("jq", "-n", ".", "in"), ("jq", "--slurp", ".", "in"), ("jq", "-e", ".", "in"), ("jq", ".", "in", "other"),
    ):  # fmt: skip
        assert not by_line(tool, *arguments), (tool, arguments)
    assert (
        is_script_command("perl", ["-w", "-ne", "1"])
        and not is_script_command("perl", ["-w", "x.pl"])
        and not is_script_command("cut", ["-f1"])
    )


PIECES = {
    "awk": ["$1", "$2", "NF", "NR", "x", "/a/", "/r/", "\"b\"", "5", ">", "==", "=", "+=", "++", "&&", "||", "!", "(", ")", "{", "}", ";", ",", " ", "print ", "next",
            "if ", "else ", "sub(/a/, \"b\")", "getline", "~", "?", ":", "-", "$0", "printf ", "length", "BEGIN ", "END ", "\n", "$NF", "/"],
    "sed": ["s/a/b/", "/a/", "/r/", "d", "p", "q", "n", "N", "h", "G", "x", ";", "!", "{", "}", ",", "1", "$", "y/a/b/", "s//c/", "g", "=", "\n", "s,r,/,"],
    "perl": ["s/a/b/", "s/(r)/<$1>/g", "print", ";", " if ", "/a/", "/(r)/", "$1", "$x", "++", "next", " unless ", "last", "tr/a/b/", "$.", "..", " ", "="],
    "jq": [".", ".n", ".id", "|", ",", "input", "inputs", "{", "}", "[", "]", "(", ")", "select", "first", ":", "id", "+", "1", "\"a\"", " as $x", "$x", "?", "length"],
}  # fmt: skip


@pytest.mark.parametrize("tool", sorted(PIECES))
def test_random_script_is_accepted_only_if_parts_agree(tool: str) -> None:
    """Draw scripts from pieces, some of which count or keep; those that are believed and run must agree in parts."""
    assert shutil.which(tool), f"{tool} is not installed"
    n_believed = 0

    @given(st.lists(st.sampled_from(PIECES[tool]), min_size=1, max_size=9).map("".join))
    def check(script: str) -> None:
        nonlocal n_believed
        if believes(tool, script) and run_script(tool, script, OBJECTS if tool == "jq" else LINES).returncode == 0:
            n_believed += 1
            assert is_same_in_parts(tool, script), script

    check()
    assert n_believed
