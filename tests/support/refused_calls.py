"""What each row of the tables of refused calls in ``docs/tools`` means: commands, in a folder of `make_bench` and more."""

from __future__ import annotations

BLAST = "-query q.faa -db prot -out o"
NUCL = "-query q.fna -db nucl -out o"
TO = "-o o --quiet"
DIAMOND = f"diamond blastp -q d.faa -d dmnd {TO}"
MMSEQS = "mmseqs easy-search q.faa prot.faa o tmp"
LIGANDS = "obabel ligands.mol2 -O o.sdf"
INCHI = "obabel ligands.mol2 -O o.inchi"
CML = "obabel ligands.mol2 -O o.cml"
VINA = "vina --receptor r.pdbqt --config box.txt"
SEEDED = f"{VINA} --seed 1"

# fmt: off
#: Commands by the page and the first cell of the row. What stands before ``; `` is done first; behind ``| `` is the tool.
CALLS: dict[str, dict[str, list[str]]] = {
    "blast": {
        "`-remote`": [f"blastp {BLAST} -remote", "blastn -query q.fna -db nt -remote -out o"],
        "`-import_search_strategy`, `-export_search_strategy`": [
            "blastp -import_search_strategy s.asn -db prot -out o", f"blastp {BLAST} -export_search_strategy s"],
        "`-in_pssm`, `-in_msa`, `-phi_pattern`": [
            "psiblast -in_pssm p.asn -db prot -out o", "psiblast -in_msa aligned/a.afa -db prot -out o",
            f"psiblast {BLAST} -phi_pattern pattern"],
        "`-out_pssm`, `-out_ascii_pssm`": [f"psiblast {BLAST} -out_pssm p", f"psiblast {BLAST} -out_ascii_pssm p"],
        "`-mt_mode 1`, except with formats 6 and 10 of blastp and blastn": [
            f"blastp {BLAST} -num_threads 2 -mt_mode 1", f"blastp {BLAST} -outfmt 5 -num_threads 2 -mt_mode 1",
            f"blastp {BLAST} -outfmt 7 -num_threads 2 -mt_mode 1", "blastx -query q.fna -db prot -out o -outfmt 6 -num_threads 2 -mt_mode 1"],
        "`blastn -ungapped`, `blastn -outfmt 11`": [f"blastn {NUCL} -ungapped", f"blastn {NUCL} -outfmt 11"],
        "`blastn -task blastn` and `dc-megablast` with an `-evalue` at which matches up to score 32 are shown": [
            f"blastn {NUCL} -task blastn -evalue 1000", f"blastn {NUCL} -task dc-megablast -evalue 1000"],
        "blastn with a query of 1,000,800 letters or more (megablast: 5,000,800) behind shorter ones": [
            "(cat q3.fna && echo '>l' && head -c 1000800 /dev/zero | tr '\\0' A) > l.fna; blastn -query l.fna -db nucl -out o -task blastn -evalue 1e-9",
            "(cat q3.fna && echo '>l' && head -c 5000800 /dev/zero | tr '\\0' A) > l.fna; blastn -query l.fna -db nucl -out o"],
        "`-query_loc` with blastx, tblastn, tblastx, rpsblast, rpstblastn": [
            "blastx -query q.fna -db prot -query_loc 1-90 -out o", "tblastn -query q.faa -db nucl -query_loc 1-90 -out o",
            "tblastx -query q.fna -db nucl -query_loc 1-90 -out o"],
        "`-parse_deflines` with a pipe, with equal ids or with records without a name": [
            "cat q.faa | blastp -db prot -parse_deflines", "cat q3.faa q3.faa > l.faa; blastp -query l.faa -db prot -parse_deflines -out o",
            "(echo '>' && echo MKV && cat q3.faa) > l.faa; blastp -query l.faa -db prot -parse_deflines -out o"],
        "`-outfmt 5` with letters outside of ASCII in a title": ["(cat q.faa; printf '\\n>x \\316\\261-amylase\\nMKV\\n') > l.faa; blastp -query l.faa -db prot -outfmt 5 -out o"],
        "`-outfmt 11` with hyphens, or letters that BLAST leaves out, in a sequence": ["(cat q.faa; printf '\\n>x\\nMK-V\\n') > l.faa; blastp -query l.faa -db prot -outfmt 11 -out o"],
        "queries that do not begin with `>`": ["echo MKVLAAGIVGLL > l.faa; blastp -query l.faa -db prot -out o", "echo P01234 > l.faa; blastp -query l.faa -db prot -out o"],
        "compressed queries": ["gzip -c q.faa > q.faa.gz; blastp -query q.faa.gz -db prot -out o"],
        "`deltablast`": [f"deltablast {BLAST}"],
    },
    "diamond": {
        "`--iterate`": [f"{DIAMOND} --iterate"],
        "`--target-indexed`": [f"{DIAMOND} --target-indexed"],
        "`--lin-stage1`": [f"{DIAMOND} --lin-stage1"],
        "`--freq-masking`, `--freq-sd`": [f"{DIAMOND} --freq-masking", f"{DIAMOND} --freq-sd 2"],
        "`--unal 1`": [f"{DIAMOND} --unal 1 -f 5"],
        "`qnum` in the columns of `-f 6`": [f"{DIAMOND} -f 6 qseqid qnum"],
        "`-f 5` for queries without residues, and of `blastx` with less than a codon": ["(echo '>e'; cat d.faa) > l.faa; diamond blastp -q l.faa -d dmnd --unal 0 -f 5 -o o", "printf '>e\\nA\\n>f\\nACGT\\n' > l.fna; diamond blastx -q l.fna -d dmnd --unal 0 -f 5 -o o"],
        "a database beside a BLAST database of the same name": [f"cp dmnd.dmnd prot.dmnd; diamond blastp -q d.faa -d prot {TO}"],
        "`--compress 1`": [f"{DIAMOND} --compress 1"],
        "`--multiprocessing` and its kin": [f"{DIAMOND} --multiprocessing", f"{DIAMOND} --mp-init", f"{DIAMOND} --parallel-tmpdir t"],
        "`makedb`, `view`, `cluster`, ...": ["diamond makedb --in prot.faa -d o", "diamond view -a x.daa", "diamond cluster -d dmnd -o o", "diamond linclust -d dmnd -o o", "diamond getseq -d dmnd"],
    },
    "mmseqs": {
        "`--num-iterations`, `--exhaustive-search`, `--lca-search`": [f"{MMSEQS} --num-iterations 2", f"{MMSEQS} --exhaustive-search", f"{MMSEQS} --lca-search 1"],
        "`--split`, `--split-mode`, `--split-memory-limit`, `--disk-space-limit`": [f"{MMSEQS} --split 2", f"{MMSEQS} --split-mode 0", f"{MMSEQS} --split-memory-limit 1G", f"{MMSEQS} --disk-space-limit 1G"],
        "`--format-mode 1`, `3`": [f"{MMSEQS} --format-mode 1", f"{MMSEQS} --format-mode 3"],
        "`qset`, `tset`, `taxid` and their kin in `--format-output`": [f"{MMSEQS} --format-output query,{each}" for each in ("qset", "qsetid", "tset", "tsetid", "taxid", "taxname", "taxlineage")],
        "`--gap-open`, `--gap-extend`": [f"{MMSEQS} --gap-open aa:9,nucl:5", f"{MMSEQS} --gap-extend aa:2,nucl:2"],
        "`--taxon-list`": [f"{MMSEQS} --taxon-list 9606"],
        "`--db-output`, `--compressed`": [f"{MMSEQS} --db-output", f"{MMSEQS} --compressed 1"],
        "`--add-self-matches`": [f"{MMSEQS} --add-self-matches"],
        "`--mpi-runner`, `--gpu`, `--gpu-server`, `--local-tmp`": [f"{MMSEQS} --mpi-runner mpirun", f"{MMSEQS} --gpu 1", f"{MMSEQS} --gpu-server 1", f"{MMSEQS} --local-tmp t"],
        "`--force-reuse`, `--remove-tmp-files 0`": [f"{MMSEQS} --force-reuse", f"{MMSEQS} --remove-tmp-files 0"],
        "several files of queries, standard input": ["mmseqs easy-search q.faa q3.faa prot.faa o tmp", "cat q.faa | mmseqs easy-search stdin prot.faa o tmp"],
        "queries or a target without a sequence, a file of `--sub-mat` that is not there, a value that MMseqs2 does not take": [": > l.faa; mmseqs easy-search l.faa prot.faa o tmp", ": > l.faa; mmseqs easy-search q.faa l.faa o tmp", f"{MMSEQS} --sub-mat no-such-file", f"{MMSEQS} -c 2"],
        "a target with profiles": ["printf '\\002\\000\\000\\000' > p.dbtype; mmseqs easy-search q.faa p o tmp"],
        "`--search-type 3`": ["mmseqs easy-search q.fna q3.fna o tmp --search-type 3"],
        "`easy-cluster`, `easy-linclust`": ["mmseqs easy-cluster q.faa o tmp", "mmseqs easy-linclust q.faa o tmp"],
        "`easy-rbh`": ["mmseqs easy-rbh q.faa prot.faa o tmp"],
        "`easy-linsearch`, `easy-taxonomy`": ["mmseqs easy-linsearch q.fna nucl.fna o tmp", "mmseqs easy-taxonomy q.faa db o tmp"],
        "`search`, `createdb`, ...": ["mmseqs search qdb tdb o tmp", "mmseqs createdb q.faa o"],
    },
    "dock6": {
        "`rank_ligands yes`": ["sed -i 's/rank_ligands .*/rank_ligands yes/' dock.in; dock6 -i dock.in"],
        "`limit_max_ligands yes`, `skip_molecule yes`": [
            "echo limit_max_ligands yes >> dock.in; dock6 -i dock.in", "echo skip_molecule yes >> dock.in; dock6 -i dock.in"],
        "an absolute `ligand_atom_file` or `ligand_outfile_prefix`": [
            "sed -i \"s:lib/:$PWD/lib/:\" dock.in; dock6 -i dock.in", "sed -i \"s:_prefix  *out:_prefix $PWD/out:\" dock.in; dock6 -i dock.in"],
        "no `ligand_atom_file`, no `ligand_outfile_prefix`": [
            "sed -i /ligand_atom_file/d dock.in; dock6 -i dock.in", "sed -i /ligand_outfile_prefix/d dock.in; dock6 -i dock.in"],
    },
    "hmmer": {
        "a profile database without `.h3m`, `.h3i`, `.h3f`, `.h3p`": ["cat p.hmm > l.hmm; hmmscan -o o l.hmm q.faa"],
        "targets from `-`, or a `.gz` file": ["cat prot.faa | hmmsearch -o o p.hmm -", "gzip -c prot.faa > l.faa.gz; hmmsearch -o o p.hmm l.faa.gz", "gzip -c prot.faa > l.faa.gz; phmmer -o o q.faa l.faa.gz"],
        "`--seed 0`": [f"{line} --seed 0 -o o {files}" for line, files in (("hmmscan", "p.hmm q.faa"), ("hmmsearch", "p.hmm prot.faa"), ("phmmer", "q.faa prot.faa"), ("jackhmmer", "q3.faa prot.faa"), ("nhmmer --dna", "q3.fna nucl.fna"))],
        "`jackhmmer --chkhmm`, `--chkali`": ["jackhmmer --chkhmm c -o o q3.faa prot.faa", "jackhmmer --chkali c -o o q3.faa prot.faa"],
        "`--mpi`": ["hmmscan --mpi -o o p.hmm q.faa", "hmmsearch --mpi -o o p.hmm prot.faa"],
        "queries other than FASTA or text profiles": ["hmmsearch -o o p.hmm.h3m prot.faa", "hmmconvert -b p.hmm > b.hmm; hmmsearch -o o b.hmm prot.faa", "(echo LOCUS && echo ID) > l.gb; phmmer -o o l.gb prot.faa"],
        "an empty query file": ["> l.faa; phmmer -o o l.faa prot.faa", "> l.faa; hmmscan -o o p.hmm l.faa"],
        "`hmmsearch` with a profile file that is newer than its own `.h3m`": ["cp p.hmm l.hmm && hmmpress l.hmm > log && touch -d '1 hour ago' l.hmm.h3m && touch l.hmm; hmmsearch -o o l.hmm prot.faa"],
        "`--cut_ga`, `--cut_nc`, `--cut_tc` where a profile has no such thresholds": [f"{line} --{option} -o o {files}" for line, files in (("hmmscan", "p.hmm q.faa"), ("hmmsearch", "p.hmm prot.faa")) for option in ("cut_ga", "cut_nc", "cut_tc")],
        "`nhmmer` with sequences whose alphabet is not sure": ["(echo '>a' && echo ACGT) > l.fna; nhmmer -o o l.fna nucl.fna"],
        "`nhmmer` with FASTA queries that all have one length, or a file called `.a2m`": ["(printf '>a\\nACGTACGTAA\\n>b\\nACGTACGTAC\\n') > l.fna; nhmmer --dna -o o l.fna nucl.fna", "cat q3.fna > l.a2m; nhmmer --dna -o o l.a2m nucl.fna"],
        "`nhmmer --hmmout` with profiles as queries": ["printf '>a\\nACGTACGTAC\\n>b\\nACGTACGTAA\\n' > d.afa && hmmbuild --dna n.hmm d.afa > log; nhmmer --hmmout h -o o n.hmm nucl.fna"],
    },
    "infernal": {
        "`--seed 0`": ["cmscan --seed 0 -o o models.cm hairpins.fa"],
        "`--verbose`": ["cmscan --verbose -o o models.cm hairpins.fa", "cmsearch --verbose -o o models.cm hairpins.fa"],
        "`--timeF1` to `--timeF6`, `-h`, `--devhelp`": [*(f"cmscan --timeF{k} -o o models.cm hairpins.fa" for k in range(1, 7)), "cmscan -h", "cmscan --devhelp"],
        "`--qformat` other than `fasta`": ["cmscan --qformat embl -o o models.cm hairpins.fa"],
        "`--cut_ga`, `--cut_nc`, `--cut_tc` where a model has no such thresholds": [f"{program} --{option} -o o models.cm hairpins.fa" for program in ("cmscan", "cmsearch") for option in ("cut_ga", "cut_nc", "cut_tc")],
        "models on standard input; a packed or piped file of sequences": ["cat models.cm | cmsearch -o o - hairpins.fa", "gzip -c hairpins.fa > l.fa.gz; cmsearch -o o models.cm l.fa.gz", "cat hairpins.fa | cmsearch -o o models.cm -"],
        "a database that is not pressed; `cmsearch` with a pressed form that is older than its models": ["cat models.cm > l.cm; cmscan -o o l.cm hairpins.fa", "cat models.cm > l.cm && cmpress l.cm > log && touch -d '1 hour ago' l.cm.i1m && touch l.cm; cmsearch -o o l.cm hairpins.fa"],
    },
    "mafft": {
        "one FASTA file, or `-`": ["mafft q3.faa", "cat q3.faa | mafft -"],
        "`--add`, `--addfragments`, ...": ["mafft --add q3.faa fams", "mafft --addfragments q3.faa fams", "mafft --addlong q3.faa fams", "mafft --addfull q3.faa fams", "mafft --addprofile q3.faa fams"],
        "`--seed`, `--merge`, `--treein`, `--anchors`": ["mafft --seed aligned/a.afa fams", "mafft --merge t fams", "mafft --treein t fams", "mafft --anchors t fams"],
        "`--treeout`, `--nodeout`, `--distout`, `--mapout`": [f"mafft {option} fams" for option in ("--treeout", "--nodeout", "--distout", "--mapout")],
        "`--dash`": ["mafft --dash fams"],
        "`--randomchain`": ["mafft --randomchain fams"],
    },
    "minimap2": {
        "a reference of 4 billion bases or more, or more than `-I`": ["minimap2 -I 10k -o o nucl.fna q.fna"],
        "an index in several parts; `--split-prefix`": ["minimap2 -I 10k -d l.mmi nucl.fna 2> log; minimap2 -o o l.mmi q.fna", "minimap2 --split-prefix s -o o nucl.fna q.fna"],
        "`-x sr` and `--frag=yes` with one file": ["minimap2 -x sr -o o nucl.fna q.fna", "minimap2 --frag=yes -o o nucl.fna q.fna"],
        "several files of reads, but for mates": ["minimap2 -o o nucl.fna q.fna q3.fna"],
        "compressed reads with `-a`": ["gzip -c q.fna > l.fna.gz; minimap2 -a -o o nucl.fna l.fna.gz"],
        "`-d`": ["minimap2 -d l.mmi nucl.fna", "minimap2 -d l.mmi nucl.fna q.fna"],
        "options that are not in the table of 2.24, and presets that are neither there nor `lr:hq`": ["minimap2 --no-such-option -o o nucl.fna q.fna", "minimap2 -x map-new -o o nucl.fna q.fna"],
    },
    "muscle": {
        "one FASTA file": ["muscle3 -in q3.faa -out o", "muscle -align q3.faa -output o"],
        "`-super5` without `-threads 1`": ["muscle -super5 fams -output 'al/{stem}.afa'", "muscle -super5 fams -output 'al/{stem}.afa' -threads 2"],
        "`-maxhours`": ["muscle3 -in fams -out 'al/{stem}.afa' -maxhours 1"],
        "`-profile`, `-in1`, `-in2`, `-spscore`, other commands of MUSCLE 5": ["muscle3 -profile -in1 aligned/a.afa -in2 aligned/b.afa -out o", "muscle3 -spscore aligned/a.afa", "muscle -letterconf fams -ref x -output o", "muscle -disperse o.efa"],
        "`-randseed 0`": ["muscle -align fams -output 'al/{stem}.afa' -perturb 1 -randseed 0"],
        "`@` in `-output`": ["muscle -align fams -output 'al/{stem}.@.afa' -stratified"],
        "`-loga` with a file that exists": ["echo x > log; muscle3 -in fams -out 'al/{stem}.afa' -loga log"],
    },
    "obabel": {
        "`-f`, `-l`": [f"{LIGANDS} -f 2", f"{LIGANDS} -l 5"],
        "`-m`, `--split`": [f"{LIGANDS} -m", f"{LIGANDS} --split"],
        "`--unique`, `--sort`, `--smallest`, `--largest`, `--align`": [f"{LIGANDS} {option}" for option in ("--unique", "--unique cansmi", "--sort MW", "--smallest 3", "--largest 3", "--align")],
        "`-j`, `--join`, `-C`, `-t`, `--readconformer`": [f"{LIGANDS} {option}" for option in ("-j", "--join", "-C", "-t", "--readconformer")],
        "`--separate`, `--writeconformers`, `--confab`": [f"{LIGANDS} {option}" for option in ("--separate", "--separate -e", "--writeconformers", "--confab")],
        "`--addinindex`, `--addoutindex`": [f"{LIGANDS} {option}" for option in ("--addinindex", "--addoutindex")],
        "`--canonical`": [f"{LIGANDS} --canonical"],
        "`--conformer`": [f"{LIGANDS} --conformer", f"{LIGANDS} --conformer --nconf 3 --score energy"],
        "`--filter`, `-s`, `-v` without `-e`": [f"{LIGANDS} --filter 'MW<300'", f"{LIGANDS} -s CN", f"{LIGANDS} -v CN"],
        "`-xu`, `-xU`, `-xe` to InChI": [f"{INCHI} {option}" for option in ("-xu", "-xU", "-xe")],
        "`-xC` to SMILES": ["obabel ligands.mol2 -O o.smi -xC"],
        "`-xm`, `-xx`, `-xc`, `-xp`, `-x1` to CML": [f"{CML} {option}" for option in ("-xm", "-xx", "-xc", "-xp", "-x1")],
        "`-z`, `-O name.gz`": [f"{LIGANDS} -z", "obabel ligands.mol2 -O o.sdf.gz"],
    },
    "vina": {
        "no `--seed`, or 0": [f"{VINA} --ligand ligands --out docked", f"{VINA} --seed 0 --ligand ligands --out docked"],
        "one ligand": [f"{SEEDED} --ligand ligands/acetone.pdbqt --out o.pdbqt"],
        "`--ligand` without `--out`": [f"{SEEDED} --ligand ligands"],
        "`--batch` with `--verbosity 2`": [f"{SEEDED} --batch ligands/*.pdbqt --dir docked --verbosity 2"],
        "`--write_maps`": [f"{SEEDED} --ligand ligands --out docked --write_maps m"],
        "`--batch` with `--score_only`, `--local_only`, `--randomize_only`": [f"{SEEDED} --batch ligands/*.pdbqt --dir docked {option}" for option in ("--score_only", "--local_only", "--randomize_only")],
        "two ligands of one file name": [f"mkdir l2 && cp ligands/acetone.pdbqt l2; {SEEDED} --batch ligands/acetone.pdbqt l2/acetone.pdbqt --dir docked"],
    },
}
# fmt: on
