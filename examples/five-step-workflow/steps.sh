mkdir families aligned profiles
blastp -query queries.faa -db targets -outfmt 6 -evalue 1e-5 -out hits.tsv
python3 -c "
import families
for name, text in families.of_each_query(open('hits.tsv', 'rb'), 'targets.faa', 1e-10):
    open('families/' + name, 'w').write(text)"
for f in families/*; do muscle3 -quiet -in "$f" -out "aligned/$(basename "$f" .faa).afa"; done
for f in aligned/*; do hmmbuild -o /dev/null "profiles/$(basename "$f" .afa).hmm" "$f"; done
cat profiles/* | grep -v '^DATE' > profiles.hmm
hmmsearch --noali --tblout scan.tbl -o scan.txt profiles.hmm targets.faa
