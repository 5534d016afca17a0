#!/usr/bin/env bash
# HMMER 3.3.2: hmmsearch, hmmstat and hmmconvert read FILE.h3m where `hmmpress FILE` has left it, not FILE; FILE may have changed
# since, and nothing says so.
. "$(dirname "$0")/common.bash"
unpack hmmer=3.3.2+dfsg-1
for k in 1 2 3; do
    printf '>a\nMKVKTAYIAKQRKWKSFVLG%sDE\n>b\nMKVRTAYLAKQRRWKSFVIG%sDE\n' $k $k | tr 123 WYC >$k.afa
    hmmbuild --amino -n p$k $k.hmm $k.afa >/dev/null
done
cat 1.hmm 2.hmm 3.hmm >profiles.hmm
hmmpress profiles.hmm >/dev/null
cp 2.hmm profiles.hmm
printf '>t\nMKVKTAYIAKQRKWKSFVLGWDE\n' >t.fa
names() { grep -o 'p[123]' | sort -u | paste -sd' '; }
expect "profiles in the file" "$(grep ^NAME profiles.hmm | names)" "p2"
expect "profiles that hmmsearch searches" "$(hmmsearch profiles.hmm t.fa | grep ^Query: | names)" "p1 p2 p3"
expect "profiles that hmmstat lists" "$(hmmstat profiles.hmm | grep -v '^#' | names)" "p1 p2 p3"
expect "profiles that hmmconvert writes" "$(hmmconvert profiles.hmm | grep ^NAME | names)" "p1 p2 p3"
rm profiles.hmm.h3*
expect "profiles that hmmsearch searches without profiles.hmm.h3m" "$(hmmsearch profiles.hmm t.fa | grep ^Query: | names)" "p2"
