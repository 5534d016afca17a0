#!/usr/bin/env bash
# BLAST+ 2.12.0: `blastp` reads a variable CHUNK_SIZE from the environment and then cuts long queries there; rows, E-values and
# ends of alignments change, with status 0. A batch system or a workflow may well have a variable of that name.
. "$(dirname "$0")/common.bash"
unpack ncbi-blast+=2.12.0+ds-3+b1
python3 - <<'P'
import random
r, letters = random.Random(3), "ACDEFGHIKLMNPQRSTVWY"
family = ["".join(r.choices(letters, k=900)) for _ in range(12)]
def change(text, share):
    text = "".join(r.choice(letters) if r.random() < share else c for c in text)
    at = r.randrange(200, 700)
    return text[:at] + "".join(r.choices(letters, k=r.randrange(1, 30))) + text[at + r.randrange(1, 30):]
open("db.fa", "w").write("".join(f">d{k}\n{change(family[k % 12], 0.68)}\n" for k in range(240)))
open("q.fa", "w").write("".join(f">q{k}\n{change(each, 0.2)}\n" for k, each in enumerate(family)))
P
makeblastdb -in db.fa -dbtype prot -out db >/dev/null
blastp -query q.fa -db db -outfmt 6 >plain
blastp -query q.fa -db db -outfmt 6 | cmp - plain
CHUNK_SIZE=500 blastp -query q.fa -db db -outfmt 6 >chunked
diff plain chunked | head -6 || true
echo "rows: $(wc -l <plain) without, $(wc -l <chunked) with CHUNK_SIZE=500"
expect "output with CHUNK_SIZE=500" "$(cmp -s plain chunked && echo same || echo other rows)" "other rows"
