#!/usr/bin/env bash
# vsearch 2.22.1: with `--sintax --threads 1 --randseed 7` a read is classified otherwise when other reads stand before it, as
# the bootstrap draws from one stream for the whole file.
. "$(dirname "$0")/common.bash"
unpack vsearch=2.22.1-1
python3 - <<'P'
import random
r = random.Random(2)
def change(text, share): return "".join(r.choice("ACGT") if r.random() < share else c for c in text)
genes = ["".join(r.choices("ACGT", k=400)) for _ in range(12)]
open("tax.fa", "w").write("".join(f">t{k}{j};tax=d:Bacteria,p:P{k % 3},c:C{k % 6},g:G{k},s:S{k}_{j}\n{change(gene, 0.04)}\n" for k, gene in enumerate(genes) for j in range(3)))
open("reads.fa", "w").write("".join(f">r{k}\n{change(r.choice(genes), 0.06)[50:300]}\n" for k in range(30)))
P
one_each reads.fa one
classify() { vsearch --sintax "$1" --db tax.fa --tabbedout out --threads 1 --randseed 7 --quiet && cat out; }
classify reads.fa >whole
classify reads.fa | cmp - whole
for k in $(seq 30); do classify one/$k.fa; done >alone
diff whole alone | head -4 || true
expect "reads of 30 that have another answer alone" "$(diff whole alone | grep -c '^<')" 27
