#!/usr/bin/env bash
# seqkit 2.3.0: `seqkit locate` with several patterns writes its rows in another order from run to run, also with one thread and one
# record: patterns are walked in the order of a hash map. With one pattern all runs are equal.
. "$(dirname "$0")/common.bash"
unpack seqkit=2.3.1+ds-1+b4
printf '>a\nATGAAACCCGGGTTTATGAAACCCGGGTTTACGTACGTACGT\n' >in.fa
for k in $(seq 12); do seqkit locate -j 1 -p ATGA -p CCCG -p GGTT -p ACGT in.fa 2>/dev/null | md5sum; done | sort -u >several
for k in $(seq 12); do seqkit locate -j 1 -p ATGA in.fa 2>/dev/null | md5sum; done | sort -u >one
for k in $(seq 12); do seqkit locate -j 1 -p ATGA -p CCCG -p GGTT -p ACGT in.fa 2>/dev/null | sort | md5sum; done | sort -u >sorted
expect "outputs of 12 equal runs with four patterns" "$([ "$(wc -l <several)" -gt 1 ] && echo several || echo one)" several
expect "the same rows, sorted" "$(wc -l <sorted)" 1
expect "outputs of 12 equal runs with one pattern" "$(wc -l <one)" 1
