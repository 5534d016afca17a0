#!/usr/bin/env bash
# HISAT2 2.2.1: whether a read is spliced depends on the reads before it in the file, with one thread: splice sites that were found are
# used for later reads (`--no-temp-splicesite` ends that). A file cut into pieces, as pipelines do, is aligned otherwise.
. "$(dirname "$0")/common.bash"
unpack hisat2=2.2.1-4+b2
python3 - <<'P'
import random
r = random.Random(11)
def bases(k): return "".join(r.choices("ACGT", k=k))
exon1, intron, exon2 = bases(400), "GT" + bases(600) + "AG", bases(400)
open("ref.fa", "w").write(f">chr\n{bases(2000)}{exon1}{intron}{exon2}{bases(2000)}\n")
text = exon1 + exon2
deep = [text[400 - at : 500 - at] for at in (45, 50, 55)]
short = [text[300 + k : 400 + k] for k in (6, 8, 9, 10, 12)]
open("deep.fa", "w").write("".join(f">deep{k}\n{each}\n" for k, each in enumerate(deep)))
open("short.fa", "w").write("".join(f">short{k}\n{each}\n" for k, each in enumerate(short)))
P
cat deep.fa short.fa >all.fa
hisat2-build -q ref.fa ref
spliced() { hisat2 -f -x ref -U "$1" "${@:2}" 2>/dev/null | grep -v '^@' | awk '/^short/ && $6 ~ /N/' | wc -l; }
echo "short overhangs that are spliced: $(spliced all.fa) behind other reads, $(spliced short.fa) without them"
expect "more of them behind other reads" "$([ "$(spliced all.fa)" -gt "$(spliced short.fa)" ] && echo yes || echo no)" yes
expect "the same with --no-temp-splicesite" "$(spliced all.fa --no-temp-splicesite)" "$(spliced short.fa --no-temp-splicesite)"
