#!/usr/bin/env bash
# FASTA 36.3.8i: what `fasta36 -m 8` reports for a query depends on the queries before it in the file. One thread, equal runs
# are equal; each query in a file of its own has other rows and E-values. `ssearch36` does not do this.
. "$(dirname "$0")/common.bash"
unpack fasta3=36.3.8i.14-Nov-2020-1
python3 - <<'P'
import random
r, letters = random.Random(1), "ACDEFGHIKLMNPQRSTVWY"
family = ["".join(r.choices(letters, k=200)) for _ in range(60)]
def change(text, share): return "".join(r.choice(letters) if r.random() < share else c for c in text)
open("db.fa", "w").write("".join(f">d{k}\n{change(family[k % 60], 0.35)}\n" for k in range(600)))
open("q.fa", "w").write("".join(f">q{k}\n{change(family[k], 0.3)[: r.randrange(40, 200)]}\n" for k in range(20)))
P
one_each q.fa one
for program in fasta36 ssearch36; do
    $program -T 1 -q -m 8 q.fa db.fa >whole.$program 2>/dev/null
    $program -T 1 -q -m 8 q.fa db.fa 2>/dev/null | cmp - whole.$program
    for k in $(seq 20); do $program -T 1 -q -m 8 one/$k.fa db.fa 2>/dev/null; done >alone.$program
done
for k in 0 1 2 3; do
    echo "q$k: $(grep -c "^q$k	" whole.fasta36) rows in the file, $(grep -c "^q$k	" alone.fasta36) alone"
done
expect "fasta36 in one file and one by one" "$(cmp -s whole.fasta36 alone.fasta36 && echo same || echo other rows)" "other rows"
expect "ssearch36 likewise" "$(cmp -s whole.ssearch36 alone.ssearch36 && echo same || echo other rows)" "same"
