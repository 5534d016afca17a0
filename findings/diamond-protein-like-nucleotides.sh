#!/usr/bin/env bash
# DIAMOND 2.1.3: a protein of alanines and glycines alone has the letters of nucleotides. Among the first ten queries of `blastp` one of
# these ends the whole run with an error; at the eleventh place it is searched like the others.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
make_diamond_database
odd=$(printf 'AAG%.0s' $(seq 20))
queries() { # PLACE of the odd one, from 1
    for k in $(seq 11); do
        [ "$k" = "$1" ] && printf '>odd\n%s\n' "$odd" || printf '>q%s\n%s\n' "$k" "$(protein "$k")"
    done
}
search() {
    diamond blastp -q q.fa -d db -f 6 qseqid -p 1 -k 1 --quiet 2>&1
}
queries 11 >q.fa
expect "rows with the odd one at the eleventh place" "$(search | wc -l)" 10
queries 10 >q.fa
expect "at the tenth place" "$(search | cut -c1-46)" \
    "Error: The sequences are expected to be protei"
