#!/usr/bin/env bash
# MMseqs2 14-7e284: in a search of nucleotides (`--search-type 3`) with one thread, a hit has another score and E-value where other queries
# come before its own in the file: here one of 300 rows, with the queries in the opposite order.
. "$(dirname "$0")/common.bash"
unpack mmseqs2=14-7e284+ds-1+b2
python3 - <<'P'
import random
r = random.Random(3)
other = str.maketrans("ACGT", "TGCA")
def change(sequence, rate):
    out, at = [], 0
    while at < len(sequence):
        x = r.random()
        if x < rate: out.append(r.choice("ACGT"))
        elif x < rate * 1.3: at += r.randrange(1, 12)
        elif x < rate * 1.6: out.append(sequence[at] + "".join(r.choices("ACGT", k=r.randrange(1, 12))))
        else: out.append(sequence[at])
        at += 1
    return "".join(out)
family = ["".join(r.choices("ACGT", k=r.randrange(300, 2500))) for _ in range(12)]
entries = [change(each, .06) for each in family for _ in range(5)]
queries = [change(each, .06) for each in family for _ in range(5)]
queries = [each.translate(other)[::-1] if r.random() < .5 else each for each in queries]
r.shuffle(queries)
open("db.fa", "w").write("".join(f">d{k}\n{each}\n" for k, each in enumerate(entries)))
records = [f">q{k}\n{each}\n" for k, each in enumerate(queries)]
open("forth.fa", "w").write("".join(records))
open("back.fa", "w").write("".join(reversed(records)))
P
for order in forth back; do
    mmseqs easy-search $order.fa db.fa $order.m8 tmp --search-type 3 -k 11 --threads 1 --shuffle 0 -v 0 >/dev/null 2>&1
    sort $order.m8 >$order.rows
done
expect "rows of 60 queries" "$(wc -l <forth.rows)" 300
expect "rows that differ" "$(comm -23 forth.rows back.rows | wc -l)" 1
expect "query, entry and bits of the row" "$(comm -23 forth.rows back.rows | cut -f1,2,12 | paste -sd' ')" $'q17\td21\t172'
expect "in the opposite order" "$(comm -13 forth.rows back.rows | cut -f1,2,12 | paste -sd' ')" $'q17\td21\t176'
