#!/usr/bin/env bash
# PRANK 170427: equal runs give different alignments, as the seed is the time; with `-seed=7` they are equal.
. "$(dirname "$0")/common.bash"
unpack prank=0.0.170427+dfsg-3
python3 - <<'P'
import random
r = random.Random(5)
letters = "ACDEFGHIKLMNPQRSTVWY"
origin = r.choices(letters, k=90)
def change():
    kept = [c if r.random() < 0.6 else r.choice(letters) for c in origin if r.random() > 0.12]
    at = r.randrange(len(kept))
    return "".join(kept[:at] + r.choices(letters, k=r.randrange(6)) + kept[at:])
open("in.fa", "w").write("".join(f">s{k}\n{change()}\n" for k in range(8)))
P
align() { # NAME OPTION...
    prank -quiet -protein -nomafft -d=in.fa -o="$@" >/dev/null 2>&1
    md5sum <"$1.best.fas"
}
for k in $(seq 8); do
    align free$k
    sleep 1
done | sort -u >free
for k in $(seq 3); do align seed$k -seed=7; done | sort -u >seeded
expect "alignments of 8 equal runs are more than one" "$([ "$(wc -l <free)" -gt 1 ] && echo yes)" "yes"
expect "alignments of 3 runs with -seed=7" "$(wc -l <seeded)" "1"
