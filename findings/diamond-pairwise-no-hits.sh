#!/usr/bin/env bash
# DIAMOND 2.1.3: `blastp -f 0` has a section "Query= ... No hits found" for a query without hits only if some other query of the file has
# a hit; in a file in which none has one, nothing is written at all. Joined pieces are not the whole.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1
make_diamond_database
for k in 0 1 2; do printf '>none%s\n%s\n' $k "$(protein 4$k | rev)"; done >none.fa
{ cat none.fa; printf '>hit\n%s\n' "$(protein 3)"; } >some.fa
sections() { diamond blastp -q "$1" -d db -f 0 -p 1 --quiet | grep -c 'Query= none' || true; }
expect "sections of three queries without hits, beside one with a hit" "$(sections some.fa)" 3
expect "sections of the three alone" "$(sections none.fa)" 0
