#!/usr/bin/env bash
# vcftools 0.1.16: the lines `vcf-annotate -f +` adds to the header come in the order of a hash map, another in each run.
. "$(dirname "$0")/common.bash"
unpack vcftools=0.1.16-3+b1
PERL5LIB=$work/root/usr/share/perl5
export PERL5LIB
printf '##fileformat=VCFv4.2\n##contig=<ID=1,length=99>\n##INFO=<ID=DP,Number=1,Type=Integer,Description="d">\n' >in.vcf
printf '#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n1\t5\t.\tA\tC\t50\t.\tDP=9\n' >>in.vcf
for k in $(seq 12); do vcf-annotate -f + in.vcf >$k.vcf; done
orders=$(md5sum -- [0-9]*.vcf | cut -d' ' -f1 | sort -u | wc -l)
sorted=$(for k in $(seq 12); do sort $k.vcf | md5sum; done | sort -u | wc -l)
expect "outputs of 12 equal runs are more than one" "$([ "$orders" -gt 1 ] && echo yes)" "yes"
expect "sets of lines in 12 equal runs" "$sorted" "1"
