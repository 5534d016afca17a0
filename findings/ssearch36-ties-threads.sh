#!/usr/bin/env bash
# FASTA 36.3.8i: `ssearch36 -T 2` writes hits of equal score in another order from run to run; with -T 1, and sorted, all runs are equal.
. "$(dirname "$0")/common.bash"
unpack fasta3=36.3.8i.14-Nov-2020-1
python3 - <<'P'
import random
r, letters = random.Random(1), "ACDEFGHIKLMNPQRSTVWY"
entries = ["".join(r.choices(letters, k=200)) for _ in range(60)]
open("db.fa", "w").write("".join(f">d{k}_{j}\n{each}\n" for k, each in enumerate(entries) for j in range(60)))
open("q.fa", "w").write("".join(f">q{k}\n{entries[k][10:190]}\n" for k in range(3)))
P
count() { for _ in $(seq 6); do ssearch36 -T "$1" -q -m 8 q.fa db.fa 2>/dev/null | eval "$2" | md5sum; done | sort -u | wc -l; }
expect "outputs of 6 equal runs with -T 2" "$([ "$(count 2 cat)" -gt 1 ] && echo several || echo one)" several
expect "with -T 1" "$(count 1 cat)" 1
expect "with -T 2, sorted" "$(count 2 sort)" 1
