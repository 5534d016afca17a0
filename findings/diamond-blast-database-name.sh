#!/usr/bin/env bash
# DIAMOND 2.1.3: `-d db` is the database db.dmnd. Where a BLAST database of that name lies beside it, `-d db` is that one: the same
# command then fails, as Debian's DIAMOND cannot read it, and says nothing of db.dmnd.
. "$(dirname "$0")/common.bash"
unpack diamond-aligner=2.1.3-1 ncbi-blast+=2.12.0+ds-3+b1
make_diamond_database
printf '>q\n%s\n' "$(protein 3)" >q.fa
expect "alone" "$(diamond blastp -q q.fa -d db -f 6 sseqid --quiet)" d3
makeblastdb -in db.fa -dbtype prot -out db >/dev/null
expect "beside a BLAST database" "$(diamond blastp -q q.fa -d db -f 6 sseqid --quiet 2>&1)" \
    "Error: This executable was not compiled with support for BLAST databases."
expect "by its whole name" "$(diamond blastp -q q.fa -d db.dmnd -f 6 sseqid --quiet)" d3
