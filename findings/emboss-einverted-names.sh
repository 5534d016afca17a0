#!/usr/bin/env bash
# EMBOSS 6.6.0: `einverted -outseq` names what it found by its place, `seq_62_72`; of a sequence with several inverted repeats all but the
# last pair are named `seq_0_0`, so that names are lost and several records share one. The report has the right places.
. "$(dirname "$0")/common.bash"
unpack emboss=6.6.0+dfsg-12 emboss-data=6.6.0+dfsg-12
export EMBOSS_ACDROOT=$work/root/usr/share/EMBOSS/acd EMBOSS_DATA=$work/root/usr/share/EMBOSS/data
python3 - <<'P'
import random
r = random.Random(3)
pair = {"A": "T", "C": "G", "G": "C", "T": "A"}
def arm(): return "".join(r.choices("ACGT", k=20))
def hairpin():
    left = arm()
    return left + "".join(r.choices("AT", k=30)) + "".join(pair[c] for c in reversed(left))
open("in.fa", "w").write(">s\n" + "".join("A" * 60 + hairpin() for _ in range(3)) + "A" * 60 + "\n")
P
einverted -auto -gap 12 -threshold 50 -match 3 -mismatch -4 -sequence in.fa -outfile report -outseq found.fa
grep '>' found.fa
expect "inverted repeats in the report" "$(grep -c Score report)" 3
expect "arms of 6 that are named s_0_0" "$(grep -c '>s_0_0' found.fa)" 4
