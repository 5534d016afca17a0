#!/usr/bin/env bash
# EMBOSS 6.6.0: `maskseq` masks the first record of a file and drops all others, with status 0 and no word; `revseq`, given
# the same file, writes all.
. "$(dirname "$0")/common.bash"
unpack emboss=6.6.0+dfsg-12 emboss-data=6.6.0+dfsg-12
export EMBOSS_ACDROOT=$work/root/usr/share/EMBOSS/acd EMBOSS_DATA=$work/root/usr/share/EMBOSS/data
for k in $(seq 20); do printf '>s%s\nACGTACGTACGTACGTACGT\n' "$k"; done >in.fa
maskseq -auto -sequence in.fa -regions 1-3 -outseq masked.fa
expect "status of maskseq" "$?" 0
revseq -auto -sequence in.fa -outseq reversed.fa
expect "records of 20 that maskseq writes" "$(grep -c '>' masked.fa)" 1
expect "records of 20 that revseq writes" "$(grep -c '>' reversed.fa)" 20
