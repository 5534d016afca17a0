#!/usr/bin/env bash
# DIAMOND 2.1.3: in XML (`-f 5`) `Query_N` is the number of the query in the file. A record without residues, which `-f 6` passes over
# without a word, is not counted, so all behind it have the number of the one before.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
make_diamond_database
printf '>first\n%s\n>second\n\n>third\n%s\n' "$(protein 1)" "$(protein 3)" >q.fa
diamond blastp -q q.fa -d db -f 5 --unal 0 -p 1 --quiet >out
number() { grep -B1 "<Iteration_query-def>$1<" out | sed -n 's/.*<Iteration_query-ID>\(.*\)<.*/\1/p'; }
expect "number of the first query" "$(number first)" Query_1
expect "number of the third, behind one without residues" "$(number third)" Query_2
