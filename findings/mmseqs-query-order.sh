#!/usr/bin/env bash
# MMseqs2 14-7e284: `mmseqs easy-search` with one thread writes the queries neither in the order of the input nor in a sorted one: those
# with numbers i, i+32, i+64 ... come together. The rows of a query are the same whatever stands around it.
. "$(dirname "$0")/common.bash"
unpack mmseqs2=14-7e284+ds-1+b2
python3 - <<'P'
import random
r, letters = random.Random(8), "ACDEFGHIKLMNPQRSTVWY"
entries = ["".join(r.choices(letters, k=160)) for _ in range(80)]
open("db.fa", "w").write("".join(f">d{k}\n{each}\n" for k, each in enumerate(entries)))
open("q.fa", "w").write("".join(f">q{k}\n{each[5:150]}\n" for k, each in enumerate(entries)))
P
mmseqs easy-search q.fa db.fa out.m8 tmp --threads 1 -v 0 >/dev/null 2>&1
cut -f1 out.m8 | uniq >seen
echo "order of the queries: $(head -6 seen | paste -sd' ') ..."
expect "first queries of 80" "$(head -6 seen | paste -sd' ')" "q0 q32 q64 q1 q33 q65"
mmseqs easy-search q.fa db.fa kept.m8 tmp --threads 1 --shuffle 0 -v 0 >/dev/null 2>&1
expect "with --shuffle 0" "$(cut -f1 kept.m8 | uniq | head -6 | paste -sd' ')" "q0 q1 q2 q3 q4 q5"
expect "the same rows in both" "$(cmp -s <(sort out.m8) <(sort kept.m8) && echo yes || echo no)" yes
