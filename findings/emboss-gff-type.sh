#!/usr/bin/env bash
# EMBOSS 6.6.0: `fuzzpro -rformat gff` writes "#!Type DNA" above the hits in all proteins of a file but the first; each
# alone is "#!Type Protein".
. "$(dirname "$0")/common.bash"
unpack emboss=6.6.0+dfsg-12 emboss-data=6.6.0+dfsg-12
export EMBOSS_ACDROOT=$work/root/usr/share/EMBOSS/acd EMBOSS_DATA=$work/root/usr/share/EMBOSS/data
printf '>a\nMKVKTAYIAKQRKWKSF\n>b\nMKQKLLEEDRKSKWWFY\n>c\nMAAKVKGGWKRK\n' >in.fa
one_each in.fa one
types() { fuzzpro -auto -rformat gff -pattern K-x-K -sequence "$1" -outfile out && grep '^#!Type' out | paste -sd' '; }
expect "types of three proteins in one file" "$(types in.fa)" "#!Type Protein #!Type DNA #!Type DNA"
for k in 1 2 3; do expect "type of protein $k alone" "$(types one/$k.fa)" "#!Type Protein"; done
