#!/usr/bin/env bash
# seqkit 2.3.0: `seqkit sliding -c` of a sequence that is shorter than the window writes what stands behind it in a buffer: NUL bytes, or
# bases of a longer record before it.
. "$(dirname "$0")/common.bash"
unpack seqkit=2.3.1+ds-1+b4
printf '>long\nAAAACCCCGGGGTTTT\n' >long.fa
printf '>short\nACG\n' >short.fa
seqkit sliding -c -s 3 -W 10 short.fa 2>/dev/null | tail -n 1 | tr '\0' 0 >alone
cat long.fa short.fa | seqkit sliding -c -s 3 -W 10 2>/dev/null | tail -n 1 | tr '\0' 0 >behind
seqkit sliding -s 3 -W 10 short.fa 2>/dev/null >straight
expect "window of 10 of the circle ACG" "$(cat alone)" ACGACG0000
expect "the same behind a longer record" "$(cat behind)" ACGACGACCC
expect "lines without -c" "$(wc -l <straight)" 0
