#!/usr/bin/env bash
# bwa 0.7.17: `bwa samse` draws one of several equal hits from a stream that goes on from read to read, so a read is placed elsewhere
# when other reads stand before it. The .sai file of `bwa aln` is not to blame: it is made anew for each, and has the same hits.
. "$(dirname "$0")/common.bash"
unpack bwa=0.7.17-7+b2
python3 - <<'P'
import random
r = random.Random(5)
repeat = "".join(r.choices("ACGT", k=300))
reference = "".join("".join(r.choices("ACGT", k=200)) + repeat for _ in range(12))
open("ref.fa", "w").write(f">chr\n{reference}\n")
starts = [r.randrange(0, 230) for _ in range(40)]
open("reads.fa", "w").write("".join(f">r{k}\n{repeat[at : at + 60]}\n" for k, at in enumerate(starts)))
P
bwa index ref.fa 2>/dev/null
place() { bwa aln ref.fa "$1" 2>/dev/null >sai && bwa samse ref.fa sai "$1" 2>/dev/null | grep -v '^@'; }
place reads.fa >whole
place reads.fa | cmp - whole
one_each reads.fa one
for k in $(seq 40); do place one/$k.fa; done >alone
echo "first places: $(cut -f4 whole | head -5 | paste -sd' ') in the file, $(cut -f4 alone | head -5 | paste -sd' ') alone"
expect "reads of 40 that are placed elsewhere alone" "$(paste <(cut -f4 whole) <(cut -f4 alone) | awk '$1 != $2' | wc -l)" 33
