"""Scripts of awk, sed and perl: those of which nothing is said write the same for each part of the lines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.tools.scripts.carried import Carried, Separator
from millrace.tools.scripts.command import scripts_of


def carried(tool: str, arguments: list[str], cwd: Path, *, below_header: bool = False) -> Carried | None:
    found = scripts_of(tool, arguments, cwd)
    assert found
    return found.carried(below_header=below_header)


def separator(tool: str, arguments: list[str], cwd: Path) -> Separator | None:
    found = scripts_of(tool, arguments, cwd)
    return found.separator() if found else None


def scripts(tool: str, arguments: list[str], cwd: Path) -> list[str]:
    found = scripts_of(tool, arguments, cwd)
    assert found
    return found.texts


LINES = [
    "r1 4 a,b,c\n", "##FASTA\n", ">s1 x y\n", "r2 17 b\n", "\n", "r3 5 c/d a=1\n", ">s2\n", "r1 2 a,b\n", "# no 9 10\n", "1 2 3\n",
]  # fmt: skip

FINE = {
    "awk": r"""
        { x = $1; print x }
        { if (match($0, /x/) && /a/ || RSTART) print }
        { if (/z/ || match($0, /x/) || RSTART) print }
        { print match($0, /a/) ? RSTART : 0 }
        /r/ && match($3, /a/) ? RSTART : 0
        { split($3, n, ","); print n[1] ? n[2] : n[3], n[4] }
        { n = split($3, a, ","); for (i = 1; i <= n; i++) print a[i] }
        BEGIN { FS = OFS = " "; m["r1"] = 1 } $2 > 3 { print $1, m[$1] }
        { gsub(/a\/b/, "x"); print }
        { $1 = $1 } 1
        NF > 2 && $1 ~ /^r/
        /^>/ { print substr($0, 2); next } { print length($0) }
        function f(a, b,   c) { c = a + b; return c } { print f($1, $2) }
        { s = 0; for (i = 2; i <= NF; i++) s += $i; print $1, s / (NF + 1) }
        { if ($2 > 5) { y = "high"; print y } else print "low" }
        { OFS = "\t"; $1 = $1; print }
        { t = $2; sub(/1/, "y", t); print t }
        !/^#/ { print $1 }
        { print (($2 > 5) ? "a" : "b") }
        { split($0, q, " "); delete w; w[q[1]] = 1; for (k in w) print k }
        { x = $1; if (x ~ /r/) x = "b"; print x }
        { a = b = 0; a += $2; print a, b }
        { c = gsub(/a/, ""); print c } # s += c
        length > 5
        BEGIN { m["r1"] = 1 } $1 in m { print }
        BEGIN { m["r1"] = "x" } { print m[$1], m[$2] }
        { delete s; s[$1]; for (k in s) print k }
        match($0, /a+/) { print substr($0, RSTART, RLENGTH) }
        { if (match($0, /a+/)) print RSTART; else print RLENGTH }
        BEGIN { OFS = "-"; ORS = ";" } { print $1, $2 }
        { x = $1; OFS = ORS = "\n"; print x, $2 }
        { OFS = ":" } /r/ { print $1, $2 }
        { print ENVIRON["HOME"] }
        { gsub(/a/, "b"); OFS = "-"; $1 = $1; print }
        BEGIN { m["r1"] = "x" } $1 in m { print m[$1] }
        BEGIN { m["r1"] = "x" } { print ($1 in m) ? m[$1] : "none" }
        BEGIN { m["r1"] = "x" } { if ($1 in m) print m[$1]; else print "none" }
        BEGIN { m["r1"] = 3 } $1 in m && m[$1] > 2
        { print $1 | "sort"; close("sort") }
        { print $2; print "seen" | "cat 1>&2" }
        function f(a) { return a "x" } { OFS = "+"; print f($1), $2 }
        { if (/a/ && match($0, /,/)) print RSTART }
        match($0, /1/) && RSTART > 1 { print RLENGTH }
        { split($0, a); split(a[3], b, ","); print b[1] }
        { x = $2 (NF > 2 ? "H" : "L"); print x }
        { r = $2++ / 2; t = r / 3; print t }
        { print 2e1 $1, 0x1F, .5 }
        BEGIN { while ((getline line < "/dev/null") > 0) w[line] } !($1 in w)
        /a/ && split($3, n, ",") { print n[1] }
        (/a/ && (x = $2) > 1) && /r/ { print x }
        { while ((k = index($0, "a")) > 0) { print k; $0 = substr($0, k + 1) } }
        { for (k = 1; k <= NF; k++) if (match($k, /,/)) print RSTART }
    """,
    # What mawk does not read.
    "gawk": r"""
        { c = 2; $c = "x"; print; $c += 2; gsub(/x/, "y", $c); print $c++ / 2 }
        { delete s; s[$1][$2] = 1; for (k in s) print k }
        { print $1 > "/dev/stderr"; close("/dev/stderr"); print }
    """,
    "sed": r"""
        s/a/b/
        /^#/d
        s/>/>x/;s/ .*//
        y/abc/def/
        s|c/d|q|g
        /r/!s/a/b/p
        /a/{s/1/y/;/2/d}
        G
        i\hello, world, 1q
        s/a/1,2q/
        \,x,d
        s/\//|/g;p
        :a;s/^\([^,]*\),/\1;/;ta
        /a,b/s/1,*/z/I
    """,
    "perl": r"""
        my $x = (/r/ ? 1 : 2) == 1 ? 3 : 4; print "$x\n"
        print "a\n" if (/r/ ? $_ : "x") =~ /a/
        (my $k = /a/ ? $_ : "x") =~ s/a/b/; print "$k\n"
        print "$1\n" if /(?:r)(\d+)/
        s/^(..)/$1 /; print
        print if /x/
        my $n = () = /a/g; print "$n\n"
        tr/a-z/A-Z/; print
        my ($u, $v) = split / /; print "$u\n"
        s{c/d}{q}g; print
        for my $i (0..3) { print $i }
        chomp; @c = split /,/; print join("|", @c), "\n"
        s/\.\././; print unless m{^..$}
        BEGIN { $x = 3 } print if length > $x
        $_ = uc; print
        my %h; $h{$_}++ for split / /; print sort keys %h
        print "a..b\n"
        s/(\d+)/$1+1/e; print # last
        s{a} {b}g; print
        s/(a)/$1$1/; print
        print $1 if /(a)/
        print "$1\n" if /^(\w+) (\d+)/ && $2 > 3
        /(r.)/ && print $1
        /(r.)/ and print "$1;\n"
        if (/(a)/) { print $1 } else { print "none" }
        if (/^>(\w+)/) { print "$1: $&\n" } elsif (/(\d)/) { print $h{$1}, $1 }
        next unless /(\d+)/; print "$1\n"
        /(\d+)/ or next; print "$1\n"
        next if $_ !~ /(\d+)/; print "$1\n"
        print /(\d)/ ? $1 : "-"
        while (/(\d)/g) { print $1 }
        print "$1," while /(\w)/g
        print $+{x} if /(?<x>a)/
        s/(\d)(\w*)/$2 . "{$1}"/e; print
        my %s; push @{$s{$_}}, 1 for split / /; print sort keys %s
        ($c, $d) = split / /; print $d, $c
        my ($c, $d) = split / / if 1; print $d
        if (my ($c) = /(\d)/) { print $c }
        $, = "-"; $\ = "\n"; print 1, 2
        chomp; $, = "-"; @c = split / /; print @c
        local $, = "-" if /a/; print 1, 2
        print "cost: $, $; = 1\n" if 0; print
        s/a$/=/; print
        chomp(my $x = $_); print $x
        my @a = split / /; $#a--; print @a
        $x = $_; chop $x; print $x
        use List::Util; print List::Util::sum(1, 2)
        print "is m?x?"
        my @w = split / /; print length($w[0]) / 2, "\n"
        my $x = $_ // "a"; print $x
        my $r = [1, 2]; $$r[0] = 3; print @$r
        my $n = 0; $n += length for split / /; print $n
        eval { print }
        print "open: close to $_" if /r2/; my %h = (open => 1); print $h{open}
        my ($v) = /(x)/; print $v // "none"
        print if $ENV{HOME}
    """,
}
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
#: Right where each part begins with the first line, and not otherwise.
FINE_BELOW_HEADER = {
    "awk": r"""
        NR == 1 || $2 > 4
        NR>1
        NR > 1 && /r/ { print $1 }
        FNR != 1
        NR >= 2 { x = $1; print x }
        NR == 1 { for (k = 1; k <= NF; k++) at[$k] = k; next } { print $at["4"] }
        NR == 1 { n = NF; print; next } NF == n
        FNR <= 1 { OFS = "\t"; FS = "," } { $1 = $1; print }
        { if (NR == 1) print "name"; else print $1 }
        { if (NR < 2) { print; next } } /r/
        (NR == 1) { print "header"; next } 1
        NR == 1; /r/ { print $2 }
        { x = $1 } NR == 1 { print x }
        NR == 1 ? 1 : $2 > 3
    """,
    "sed": r"""
        1d
        1!s/r/x/
        1s/r/name/
        /a/d;1!{s/2/3/;p}
        1{s/r/x/;s/4/5/}
    """,
    "perl": r"""
        print if $. == 1 || /a/
        print unless $. == 1
        next if $. <= 1; print
        print if $. > 1 and /r/
        if ($. == 1) { print "name\n"; next } s/r/x/; print
        s/1/2/ if $. != 1; print
        ($. < 2) ? print : print uc
    """,
}
CARRIED_BELOW_HEADER = {
    "awk": r"""
        NR == 2
        NR > 10
        NR % 3 == 1
        NR - 3 == 1
        3 + NR == 1 + $2
        NR == 1 + n
        NR == 1, /s1/
        { print $1, NR>1 }
        NR == 1 { RS = ""; print; next } { print NF }
        BEGIN { NR = -3 } NR == 1
        { print NR == 1, NR }
        NR == 1 { x = 5 } { print x; x = $1 }
        NR == 1 { n = 0 } { n++; print n }
        NR == 1 { getline; print }
        NR == 1 { NR = 0 } NR == 1
        NR == 1 { print | "sort" } { print }
        NR == 1 || x { print x; x = $1 }
        NR > 1 { x = $1 } { print x }
        { if (NR == 1) x = 5; if ($2 > 4) x = $2; print x }
        NR == 1 { at["r1"] = 1 } { if ($1 in at) print; at[$1] }
        $NR == 1 { print }
        NR == 1 { print; next } END { print "end" }
    """,
    "sed": r"""
        2d
        1,3d
        1~2d
        1!G;h
        1h;2x
        1{N;d}
        11d
        $d
    """,
    "perl": r"""
        print if $. == 2
        print if $. > 10
        print if $. % 2 == 1
        print if $n + $. == 1
        $x = $_ if $. == 1; print $x; $x = $_
        if ($. == 1) { $n = 0 } print $n++
        last if $. > 1 && /s1/; print
        print "($.>1) $_"
        s/^/($.>1)/; print
        print qq{($.>1) $_}
        print "$.\n" if $. == 1 or /r/
    """,
}


def _cases(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(tool, line.strip()) for tool, text in table.items() for line in text.splitlines() if line.strip()]


def _arguments(tool: str, script: str) -> list[str]:
    return ["-ne", script] if tool == "perl" else [script]


def _run(tool: str, script: str, lines: list[str]) -> bytes:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    given = "".join(lines).encode()
    return subprocess.run(
        [tool, *_arguments(tool, script)], input=given, capture_output=True, check=True, timeout=300
    ).stdout


def _is_same_in_parts(tool: str, script: str) -> bool:
    return _run(tool, script, LINES) == b"".join(_run(tool, script, [line]) for line in LINES)


@pytest.mark.parametrize(("tool", "script"), _cases(FINE))
def test_what_treats_each_line_by_itself_is_let_through(tool: str, script: str) -> None:
    assert carried(tool, _arguments(tool, script), Path()) is None
    assert _is_same_in_parts(tool, script), "or it is not what it seems"


@pytest.mark.parametrize(("tool", "script"), _cases(CARRIED))
def test_what_goes_from_line_to_line_is_seen(tool: str, script: str) -> None:
    assert carried(tool, _arguments(tool, script), Path()) is not None


def _is_same_below_header(tool: str, script: str) -> bool:
    """Whether parts that begin with the first line write, behind what they write for that, what the whole does."""
    first = _run(tool, script, LINES[:1])
    parts = [_run(tool, script, [LINES[0], line]) for line in LINES[1:]]
    return all(part.startswith(first) for part in parts) and _run(tool, script, LINES) == b"".join(
        [first, *(part.removeprefix(first) for part in parts)]
    )


@pytest.mark.parametrize(("tool", "script"), _cases(FINE_BELOW_HEADER))
def test_the_first_line_may_be_asked_for_where_each_part_has_it(tool: str, script: str) -> None:
    arguments = _arguments(tool, script)
    assert carried(tool, arguments, Path()) is not None
    assert carried(tool, arguments, Path(), below_header=True) is None
    assert _is_same_below_header(tool, script), "or it is not what it seems"


@pytest.mark.parametrize(("tool", "script"), _cases(CARRIED_BELOW_HEADER))
def test_what_goes_from_line_to_line_is_seen_below_a_header(tool: str, script: str) -> None:
    assert carried(tool, _arguments(tool, script), Path(), below_header=True) is not None


LOOKUP = "NR == FNR { ids[$1]; next } "


@pytest.mark.parametrize(
    ("script", "is_fine"),
    [
        (LOOKUP + "$1 in ids", True),
        (LOOKUP + "FNR > 0 { print }", False),
        (LOOKUP + "!($2 in ids) { print; ids[$2] }", False),
        (LOOKUP + "{ n++; print n }", False),
        ('BEGIN { OFS = "-" } FNR == NR { at[$1] = FNR; n++\n next }\n$1 in at { print n, at[$1] }', True),
        ("NR == FNR { if (/r/) ids[$1]; next } ($1 in ids)", True),
        ("NR == FNR { if (/r/) next } 1", False),
        ("NR == FNR { if (/r/)\nnext } 1", False),
        ("NR == FNR { ids[$1]; print; next } $1 in ids", False),
        ("NR == FNR { ids[$1] } $1 in ids", False),
        ("{ print } " + LOOKUP, False),
        ("/r/", False),
    ],
)
def test_another_file_may_be_read_first_by_a_rule_of_its_own(script: str, is_fine: bool, tmp_path: Path) -> None:
    (tmp_path / "ids").write_text("r1\nr3\n")

    def write(lines: list[str]) -> bytes:
        (tmp_path / "t").write_text("".join(lines))
        return subprocess.run(["awk", script, "ids", "t"], cwd=tmp_path, capture_output=True, check=True).stdout

    found = scripts_of("awk", [script, "ids", "t"], tmp_path)
    assert found
    assert (found.carried(path="t") is None) == is_fine
    if is_fine:
        assert write(LINES) == b"".join(write([line]) for line in LINES)
    turned = scripts_of("awk", [script, "t", "ids"], tmp_path)
    assert turned and turned.carried(path="t")


def test_another_file_would_be_written_of_with_each_part(tmp_path: Path) -> None:
    for tool, arguments in (
        ("sed", ["s/a/b/", "x", "t"]),
        ("perl", ["-ne", "print", "t", "x"]),
        ("awk", ["1", "x", "FS=,", "t"]),
    ):
        found = scripts_of(tool, arguments, tmp_path)
        assert found and found.carried() is None
        said = found.carried(path="t")
        assert said and "reads x as well" in said.why


def test_numbers_that_are_given_are_not_those_of_lines(tmp_path: Path) -> None:
    assert carried("awk", ["NR == 1", "x"], tmp_path, below_header=True) is None
    for arguments in (["-v", "NR=-3", "NR == 1", "x"], ["NR == 1", "FNR=7", "x"]):
        assert carried("awk", arguments, tmp_path, below_header=True), arguments


names = st.sampled_from(["x", "y"])
tells = st.sampled_from(
    [
        "/r/",
        "x",
        "$2 > 4",
        "(x = $2 > 4)",
        'split($3, n, ",") > 1',
        "match($0, /1/)",
        "n[1] ~ /a/",
        "RSTART > 2",
        "($1 in n)",
    ]
)
conditions = st.recursive(
    tells,
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||", "&&\n"]), inner),
        st.builds("{}({})".format, st.sampled_from(["", "!", "1 - "]), inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=3,
)
values = st.sampled_from(["$1", "$2 + 1", "x", "y $1", "1", "x + 1", "length($0)", "n[1]", "($1 in n)", "length(n)"])
statements = st.recursive(
    st.one_of(
        st.builds("{} = {}".format, names, values),
        st.builds("{} += {}".format, names, values),
        st.builds("{}++".format, names),
        st.builds("print {}".format, values),
        st.just('split($3, n, ",")'),
        st.sampled_from(['OFS = "-"', "print $1, $2", "$2 = x", "n[$1]"]),
        st.builds("n[{}] = 1".format, values),
        st.sampled_from(["print j, m, RSTART", "delete n", "next", "$1 && y = 1"]),
    ),
    lambda inner: st.one_of(
        st.builds("if ({}) {}".format, st.one_of(values, conditions), inner),
        st.builds("if ({}) {}; else {}".format, conditions, inner, inner),
        st.builds("if ({}) {{ {} }} else {{ {} }}".format, st.one_of(values, conditions), inner, inner),
        st.builds("for (j in n) {}".format, inner),
        st.builds("for (m = 1; m < 3 && {}; m++) {{ {}; break }}".format, conditions, inner),
        st.builds("{{ {}; {} }}".format, inner, inner),
        st.builds("for (k = 1; k < 3; k++) {}".format, inner),
        st.builds("if ({})\n{}".format, values, inner),
    ),
    max_leaves=6,
)
patterns = st.one_of(st.sampled_from(["", "$1 ~ /r/ ", "x ", "/a/ && y "]), conditions)
rules = st.builds("{}{{ {}\n{} }}".format, patterns, statements, statements)


@pytest.mark.skipif(not shutil.which("awk"), reason="awk is not installed")
@settings(deadline=None, max_examples=60)
@given(st.lists(rules, min_size=1, max_size=3).map("\n".join))
def test_no_program_of_awk_that_is_let_through_carries_anything(script: str) -> None:
    if carried("awk", [script], Path()) is None and _is_sound(script):
        assert _is_same_in_parts("awk", script)


def _is_sound(script: str) -> bool:
    """Whether awk runs it: a name may stand for an array in one place and for a number in another."""
    given = "".join(LINES).encode()
    return subprocess.run(["awk", script], input=given, capture_output=True, timeout=300).returncode == 0


tests = st.sampled_from(
    ["NR == 1", "FNR>1 ", "(NR < 2)", "NR==1 || x", "$1 ~ /r/ && NR != 1", "NR == 1 + x", "x + NR == 1", ""]
)
rules_below_header = st.builds(
    "{}{{ {}\n{} }}".format, tests, statements, st.one_of(statements, st.builds("if (NR == 1) {}".format, statements))
)


@pytest.mark.skipif(not shutil.which("awk"), reason="awk is not installed")
@settings(deadline=None, max_examples=60)
@given(st.lists(rules_below_header, min_size=1, max_size=3).map("\n".join))
def test_no_program_of_awk_that_is_let_through_below_a_header_carries_anything(script: str) -> None:
    if carried("awk", [script], Path(), below_header=True) is None and _is_sound(script):
        assert _is_same_below_header("awk", script)


commands = st.sampled_from(
    ["s/a/b/", "d", "p", "N", "G", "h", "g", "x", "/a/d", "/r/!d", "/a/,/1/p", "2p", "1d", "1!s/r/x/", "$p", "y/a1/b2/", "n", "q", "/r/{p;d}", "/r/!{s/r/,/;x}",
     "s,/,N;h,g", "D", "=", "a\\1,2q\n", "/##/q", "i\\x\n"]
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(st.lists(commands, min_size=1, max_size=4).map(";".join))
def test_no_script_of_sed_that_is_let_through_carries_anything(script: str) -> None:
    if carried("sed", [script], Path()) is None:
        assert _is_same_in_parts("sed", script)
    if carried("sed", [script], Path(), below_header=True) is None:
        assert _is_same_below_header("sed", script)


perl_tests = st.recursive(
    st.sampled_from(
        [
            "/r(.)/",
            "/a/",
            "$x",
            "!$x",
            "/(\\d) (.)/",
            "@a > 1",
            "exists $h{a}",
            "m{b}",
            "defined $y",
            "s/a/b/",
            "($x) = /(\\d)/",
            "keys %h",
        ]
    ),
    lambda inner: st.one_of(
        st.builds("{} {} {}".format, inner, st.sampled_from(["&&", "||", "and", "or"]), inner),
        st.builds("!({})".format, inner),
        st.builds("({} ? {} : {})".format, inner, inner, inner),
    ),
    max_leaves=3,
)
perl_values = st.sampled_from(
    [
        "$1",
        "$x",
        "$y",
        "$x . $1",
        "1",
        "$h{a}",
        "$a[0]",
        "scalar(@a)",
        "$_",
        "length($_)",
        '"$x-$1"',
        "uc $1",
        "$&",
        "$y // 2",
        "my $z = $y",
    ]
)
places = st.sampled_from(["$x", "$y", "$h{$1}", "$h{a}", "$a[0]", "$_", "my $x", "my ($x, $y)", "@a", "my @a"])
perl_statements = st.recursive(
    st.one_of(
        st.builds("{} = {}".format, places, perl_values),
        st.builds(
            "{} {}= {}".format, st.sampled_from(["$x", "$y", "$h{a}"]), st.sampled_from([".", "+", "||"]), perl_values
        ),
        st.builds("print {}".format, perl_values),
        st.sampled_from(
            [
                "@a = split",
                "my @a = /(\\w)/g",
                "push @a, $1",
                "@a = sort @a",
                "$h{$1} = 1",
                "delete $h{a}",
                "undef $x",
                "s/(.)/<$1>/",
                "next",
                "print",
                "local $x = 3",
                "pop @a",
                "chop $x",
                "my %h = (a => 1)",
                "my $y",
                "our $x",
                "s/(\\d)/$x++/e",
                "print for @a",
                "$_++ for @a",
                "$, = '-'",
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.builds("if ({}) {{ {} }}".format, perl_tests, inner),
        st.builds("unless ({}) {{ {} }} else {{ {} }}".format, perl_tests, inner, inner),
        st.builds("{}; {}".format, inner, inner),
        st.builds("{{ {} }}".format, inner),
        st.builds("for my $k (1..2) {{ {} }}".format, inner),
        st.builds("for (@a) {{ {} }}".format, inner),
    ),
    max_leaves=4,
)
one_liners = st.lists(
    st.one_of(
        perl_statements,
        st.builds("{} {} {}".format, perl_statements, st.sampled_from(["if", "unless"]), perl_tests),
        st.builds("{} and {}".format, perl_tests, perl_statements),
    ),
    min_size=1,
    max_size=4,
).map("; ".join)


@settings(deadline=None, max_examples=100)
@given(one_liners)
def test_no_one_liner_of_perl_that_is_let_through_carries_anything(script: str) -> None:
    if carried("perl", ["-ne", script], Path()) is not None:
        return
    whole, *parts = (
        subprocess.run(
            ["perl", "-ne", script], input="".join(lines).encode(), capture_output=True, check=False, timeout=300
        )
        for lines in (LINES, *([line] for line in LINES))
    )
    # A number may have been used as a reference, where no line of the output is what it was to be.
    assert whole.returncode or whole.stdout == b"".join(part.stdout for part in parts)


def test_scripts_are_found_where_the_command_has_them(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("/a/,/b/p")
    for tool, arguments in (
        ("awk", ["-F", "\t", "-vx=1", "-v", "y=2", "SCRIPT", "file"]), ("gawk", ["--re-interval", "-F,", "SCRIPT"]),
        ("sed", ["-n", "SCRIPT", "file"]), ("sed", ["-ne", "SCRIPT", "file"]), ("sed", ["--expression=SCRIPT"]),
        ("perl", ["-F,", "-lane", "SCRIPT", "x"]), ("perl", ["-0777", "-pe", "SCRIPT"]), ("perl", ["-Mstrict", "-l", "-n", "-e", "SCRIPT"]),
    ):  # fmt: skip
        assert scripts(tool, arguments, tmp_path) == ["SCRIPT"], arguments
    for tool, arguments in (("awk", ["-f", "s.txt", "x"]), ("sed", ["-nf", "s.txt"]), ("sed", ["--file=s.txt", "x"])):
        assert scripts(tool, arguments, tmp_path) == ["/a/,/b/p"]
        assert carried(tool, arguments, tmp_path)
    for tool, arguments in (
        ("nawk", ["-f", "s.txt"]), ("gawk", ["-E", "s.txt", "-f", "x"]), ("gawk", ["--exec=s.txt"]), ("gawk", ["--ex", "s.txt"]),
        ("gawk", ["--fil=s.txt"]), ("gawk", ["--inc", "s.txt", "1"]), ("gawk", ["-is.txt", "1"]), ("mawk", ["-W", "exec=s.txt"]), ("gawk", ['@include "s.txt"\n1']), ("gawk", ["-f", "both.awk"]),
        ("gawk", ["-i", "s", "1"]), ("gawk", ["-e", "1", "-i", "s.txt"]), ("mawk", ["-W", "interactive", "/a/,/b/"]),
        ("sed", ["x", "-e", "/a/q"]), ("sed", ["x", "--fi", "s.txt"]), ("sed", ["--exp=/a/q", "x"]), ("sed", ["--expr", "/a/q"]),
        ("sed", ["/a/q", "x", "-n"]), ("sed", ["-nE", "/a/q"]), ("sed", ["-E", "-f", "s.txt"]), ("sed", ["-i.old", "/a/q"]), ("sed", ["--in=.old", "--", "/a/q"]),
        ("perl", ["-n", "last.pl", "x"]), ("perl", ["-lp", "last.pl"]), ("perl", ["first.pl", "x"]),
        ("perl", ["-F,", "-e", "last"]), ("perl", ["-I", "lib", "-ne", "last"]), ("perl", ["-CSD", "-ne", "last"]),
    ):  # fmt: skip
        (tmp_path / "both.awk").write_text('@include "both.awk"\n@include "s"\n')
        (tmp_path / "s.awk").write_text("/a/,/b/")
        (tmp_path / "last.pl").write_text("last if /a/; print")
        (tmp_path / "first.pl").write_text("#!/usr/bin/perl -n\nlast if /a/; print")
        assert carried(tool, arguments, tmp_path), arguments
    assert carried("perl", ["-ne", "s{x}"], tmp_path) is None, "which perl itself will refuse"
    assert scripts("gawk", ["-i", "inplace", "-i", "missing", "1"], tmp_path) == ["1"]
    assert carried("perl", ["last.pl"], tmp_path) is None
    assert scripts("perl", ["script.pl", "-e", "x"], tmp_path) == []
    assert carried("awk", ["-f", "missing"], tmp_path) is None


def test_records_that_are_not_lines_are_seen(tmp_path: Path) -> None:
    for tool, arguments, word in (
        ("sed", ["-z", "s/a/b/"], "-z"), ("sed", ["s/a/b/", "--null-data"], "-z"), ("sed", ["-nzE", "p"], "-z"), ("sed", ["--zero", "p"], "-z"),
        ("perl", ["-0pe", "1"], "-0"), ("perl", ["-00", "-ne", "1"], "-00"), ("perl", ["-lan0777e", "1"], "-0777"), ("perl", ["-0xFFne", "1"], "-0xFF"),
        ("perl", ["-ne", "BEGIN { $/ = undef } 1"], "$/ = undef"), ("perl", ["-ne", "BEGIN { undef $/ } 1"], "$/ = undef"),
        ("awk", ["-v", "RS=;", "1"], "RS=;"), ("awk", ["-vRS=", "1"], "RS="), ("gawk", ["--assign", "RS=>", "1"], "RS=>"), ("gawk", ["--ass=RS=>", "1"], "RS=>"),
        ("awk", ["1", "RS=", "x"], "RS="), ("awk", ['BEGIN { RS = "" } 1'], 'RS=""'), ("awk", ['BEGIN { FS = RS = ">" } { print }'], 'RS=">"'),
        ("awk", ["BEGIN { RS = FS } 1"], "RS=FS"), ("awk", ['BEGIN { RS = "a" "b" } 1'], "RS=..."), ("awk", ["BEGIN { if (x) { RS = ORS ORS } } 1"], "RS=..."),
    ):  # fmt: skip
        found = separator(tool, arguments, tmp_path)
        assert found and found.word == word, (arguments, found)
    for tool, arguments in (
        ("sed", ["s/z/-z/", "--", "-z"]), ("sed", ["-e", "-z"]), ("perl", ["-lpe", "1"]), ("perl", ["-l0", "-pe", "1"]), ("perl", ["-012ne", "1"]),
        ("perl", ["-0xAne", "1"]), ("perl", ["-F0", "-ane", "1"]), ("perl", ["-ne", 'BEGIN { $/ = "\\n" } 1']), ("cut", ["-z", "-f1"]),
        ("awk", [r"-vRS=\n", "1"]), ("awk", [r'BEGIN { RS = "\r?\n"; FS = ";" } 1']), ("awk", ["BEGIN { ORS = RS } 1"]), ("awk", ["-F", "RS=x", "1"]),
        ("awk", ['BEGIN { print "x" } $1 == "RS"']), ("awk", ['BEGIN { FS = RS = "\n" } 1']),
    ):  # fmt: skip
        assert not separator(tool, arguments, tmp_path), arguments
    for tool, arguments in (("sed", ["-z", "p"]), ("perl", ["-0ne", "1"]), ("perl", ["-0x0", "-ne", "1"]), ("awk", [r'BEGIN { RS = "\0" } 1']), ("gawk", [r"-vRS=\0", "1"])):  # fmt: skip
        found = separator(tool, arguments, tmp_path)
        assert found and found.is_nul, arguments
