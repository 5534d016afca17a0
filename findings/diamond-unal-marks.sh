#!/usr/bin/env bash
# DIAMOND 2.1.3: `blastp -f 6 --unal 1` is to add a row with `*` for each query without hits. The rows with `*` bear the names of
# queries that have hits.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
make_diamond_database
for k in $(seq 0 2 18); do
    printf '>none%s\n%s\n>hit%s\n%s\n' "$k" "$(protein "$k" | rev)" $((k + 1)) "$(protein $((k + 1)))"
done >q.fa
diamond blastp -q q.fa -d db -f 6 qseqid sseqid --unal 1 -p 1 --quiet >out
awk '$2 == "*"' out | sort | head -4
expect "marks at queries that have a hit" "$(awk '$2 == "*" && /^hit/' out | wc -l)" 10
expect "marks at queries without one" "$(awk '$2 == "*" && /^none/' out | wc -l)" 0
