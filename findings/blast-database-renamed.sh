#!/usr/bin/env bash
# BLAST+ 2.12.0: a database of version 5, the default, cannot be copied or linked to another name, as pipelines do that name their
# inputs themselves: its index holds the name of a file. Within the same folder the error blames a volume, elsewhere a missing file. One of
# version 4 can be renamed.
. "$(dirname "$0")/common.bash"
unpack ncbi-blast+=2.12.0+ds-3+b1
printf '>a\n%s\n' MKTAYIAKQRQISFVKSHFSRQLEERLGLIEVQAPILSRVGDGTQDNLSGAEKAVQVKVKALPDAQFEVVHSLAKWKRQ >a.fa
mkdir elsewhere
for version in 4 5; do
    makeblastdb -in a.fa -dbtype prot -blastdb_version $version -out v$version >/dev/null
    for file in v$version.*; do
        ln -s "$file" "renamed$version.${file#*.}"
        ln -s "../$file" "elsewhere/renamed$version.${file#*.}"
    done
done
search() { # DATABASE: rows, or the error
    blastp -query a.fa -db "$1" -outfmt '6 qseqid sseqid' 2>&1 | tr '\t' ' ' || true
}
expect "version 4 under its name" "$(search v4)" "a a"
expect "version 4 under another name" "$(search renamed4)" "a a"
expect "version 5 under its name" "$(search v5)" "a a"
expect "version 5 under another name" "$(search renamed5)" "BLAST Database error: Input db vol does not match lmdb vol"
expect "and in another folder" "$(search elsewhere/renamed5 | grep -o 'mdb_env_open: No such file or directory')" "mdb_env_open: No such file or directory"
