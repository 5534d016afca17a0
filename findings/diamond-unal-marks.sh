#!/usr/bin/env bash
# DIAMOND 2.1.3: `blastp -f 6 --unal 1` is to add a row with `*` for each query without hits. The rows with `*` bear the names of
# queries that have hits.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
python3 - <<'P'
import random
r, letters = random.Random(4), "ACDEFGHIKLMNPQRSTVWY"
entries = ["".join(r.choices(letters, k=150)) for _ in range(50)]
open("db.fa", "w").write("".join(f">d{k}\n{each}\n" for k, each in enumerate(entries)))
queries = [entries[k] if k % 2 else "".join(r.choices(letters, k=150)) for k in range(20)]
open("q.fa", "w").write("".join(f">{'hit' if k % 2 else 'none'}{k}\n{each}\n" for k, each in enumerate(queries)))
P
diamond makedb --in db.fa -d db --quiet
diamond blastp -q q.fa -d db -f 6 qseqid sseqid --unal 1 -p 1 --quiet >out
awk '$2 == "*"' out | sort | head -4
expect "marks at queries that have a hit" "$(awk '$2 == "*" && /^hit/' out | wc -l)" 10
expect "marks at queries without one" "$(awk '$2 == "*" && /^none/' out | wc -l)" 0
