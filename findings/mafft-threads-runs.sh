#!/usr/bin/env bash
# MAFFT 7.505: with `--thread 4` an iterative alignment (`--maxiterate`) is another one in each run, although nothing is random. With one
# thread all are equal; so are progressive alignments with four.
. "$(dirname "$0")/common.bash"
unpack mafft=7.505-1
export MAFFT_BINARIES=$work/root/usr/lib/mafft/lib/mafft
python3 - <<'P'
import random
r, letters = random.Random(9), "ACDEFGHIKLMNPQRSTVWY"
origin = "".join(r.choices(letters, k=220))
def change(text):
    text = "".join(r.choice(letters) if r.random() < 0.45 else c for c in text)
    at = r.randrange(20, 180)
    return text[:at] + text[at + r.randrange(1, 25):]
open("in.fa", "w").write("".join(f">s{k}\n{change(origin)}\n" for k in range(16)))
P
count() { for k in 1 2 3 4; do mafft --quiet --amino "$@" in.fa | md5sum; done | sort -u | wc -l; }
expect "alignments of 4 runs, --maxiterate 16 --thread 4" "$([ "$(count --maxiterate 16 --thread 4)" -gt 1 ] && echo several || echo one)" several
expect "alignments of 4 runs, --maxiterate 16 --thread 1" "$(count --maxiterate 16 --thread 1)" 1
