#!/usr/bin/env bash
# EMBOSS 6.6.0: `einverted -outseq` names what it found by its place, as `s_61_92`. In the second sequence of a file as many names as the
# first had end in `_0_0`; alone, or as the first of a file, the same sequence has the right names. The report has them in any case.
. "$(dirname "$0")/common.bash"
unpack emboss=6.6.0+dfsg-12 emboss-data=6.6.0+dfsg-12
export EMBOSS_ACDROOT=$work/root/usr/share/EMBOSS/acd EMBOSS_DATA=$work/root/usr/share/EMBOSS/data
python3 - <<'P'
import random
r = random.Random(3)
pair = {"A": "T", "C": "G", "G": "C", "T": "A"}
def hairpin():
    left = "".join(r.choices("ACGT", k=20))
    return left + "".join(r.choices("AT", k=30)) + "".join(pair[c] for c in reversed(left))
first, second = ("A" * 60 + hairpin() + "A" * 60 for _ in range(2))
open("both.fa", "w").write(f">first\n{first}\n>second\n{second}\n")
open("alone.fa", "w").write(f">second\n{second}\n")
P
names() { einverted -auto -gap 12 -threshold 50 -match 3 -mismatch -4 -sequence "$1" -outfile report -outseq found.fa; grep '>second' found.fa | paste -sd' '; }
expect "names in the second sequence of a file" "$(names both.fa)" ">second_0_0 >second_0_0"
expect "the same sequence alone has such names" "$(names alone.fa | grep -c 0_0 || true)" 0
