#!/usr/bin/env bash
# Snakemake 9.27.1: a wrapper of one's own without `environment.yaml`, which no option asks to be used ("Conda environments: ignored"),
# does its work, and then the job fails: "Error recording metadata"; the advice is to look at permissions of `.snakemake`. With any such
# file, the same job is complete.
. "$(dirname "$0")/common.bash"
python3 -m venv tools >/dev/null && tools/bin/pip install -q --disable-pip-version-check snakemake==9.27.1 || {
    echo "cannot be had here: snakemake==9.27.1" >&2
    exit 2
}
mkdir -p own/copy && echo hello >in.txt
cat >own/copy/wrapper.py <<'P'
from pathlib import Path
Path(snakemake.output[0]).write_text(Path(snakemake.input[0]).read_text().upper())
P
cat >Snakefile <<'S'
rule copy:
    input: "in.txt"
    output: "out.txt"
    wrapper: "file:own/copy"
S
run() {
    rm -rf .snakemake out.txt
    tools/bin/snakemake --cores 1 >log 2>&1 && echo complete || grep -o 'Error recording metadata.*directory' log | sort -u | head -1
}
expect "without environment.yaml" "$(run)" "Error recording metadata for finished job ([Errno 2] No such file or directory: 'own/copy/environment.yaml'). Please ensure write permissions for the directory"
expect "its output is there" "$(cat out.txt)" "HELLO"
printf 'channels: [conda-forge]\ndependencies: [python]\n' >own/copy/environment.yaml
expect "with one" "$(run)" "complete"
