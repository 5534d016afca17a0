#!/usr/bin/env bash
# DIAMOND 2.1.3: `blastp -f 0` has a section "Query= ... No hits found" for a query without hits only if some other query of the file has
# a hit; in a file in which none has one, nothing is written at all. Joined pieces are not the whole.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
python3 - <<'P'
import random
r, letters = random.Random(4), "ACDEFGHIKLMNPQRSTVWY"
entries = ["".join(r.choices(letters, k=150)) for _ in range(50)]
open("db.fa", "w").write("".join(f">d{k}\n{each}\n" for k, each in enumerate(entries)))
none = ["".join(r.choices(letters, k=150)) for _ in range(3)]
open("none.fa", "w").write("".join(f">none{k}\n{each}\n" for k, each in enumerate(none)))
open("some.fa", "w").write(open("none.fa").read() + f">hit\n{entries[3]}\n")
P
diamond makedb --in db.fa -d db --quiet
sections() { diamond blastp -q "$1" -d db -f 0 -p 1 --quiet | grep -c 'Query= none' || true; }
expect "sections of three queries without hits, beside one with a hit" "$(sections some.fa)" 3
expect "sections of the three alone" "$(sections none.fa)" 0
