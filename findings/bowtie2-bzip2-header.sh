#!/usr/bin/env bash
# bowtie2 2.5.0: with reads packed by bzip2 the `@PG` line names a pipe of the run, `/tmp/vm_NUMBER.unps`, in place of the file, so no two
# runs write the same SAM. With the same reads packed by gzip they do.
. "$(dirname "$0")/common.bash"
unpack bowtie2=2.5.0-3+b2
python3 - <<'P'
import random
reference = "".join(random.Random(2).choices("ACGT", k=3000))
open("ref.fa", "w").write(f">chr\n{reference}\n")
open("r.fq", "w").write("".join(f"@r{k}\n{reference[90 * k : 90 * k + 80]}\n+\n{'I' * 80}\n" for k in range(20)))
P
bowtie2-build -q ref.fa ref
bzip2 -k r.fq && gzip -k r.fq
for run in 1 2; do
    for packed in bz2 gz; do bowtie2 -x ref -U r.fq.$packed 2>/dev/null >$packed.$run; done
done
grep -h '^@PG' bz2.1 bz2.2 | sed 's/.*-U/-U/'
same() { if cmp -s "$1.1" "$1.2"; then echo yes; else echo no; fi; }
grep -v '^@PG' bz2.1 >rows.1 && grep -v '^@PG' bz2.2 >rows.2
expect "packed by gzip, two runs are the same" "$(same gz)" yes
expect "packed by bzip2, two runs are the same, but for @PG" "$(same rows)" yes
expect "packed by bzip2, two runs are the same" "$(same bz2)" no
