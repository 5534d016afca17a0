#!/usr/bin/env bash
# Open Babel 3.1.1: `obabel --gen3D` gives one molecule other coordinates in each run, with no option for a seed. `--gen2D` and canonical
# SMILES do not differ.
. "$(dirname "$0")/common.bash"
unpack openbabel=3.1.1+dfsg-9+b3
export BABEL_LIBDIR=$(dirname "$(find "$work/root" -name 'mdlformat.so')")
export BABEL_DATADIR=$(dirname "$(find "$work/root" -name 'mmff94.ff')")
echo 'CC(C)CC1=CC=C(C=C1)C(C)C(=O)O ibuprofen' >in.smi
make() { for k in $(seq 4); do obabel in.smi -osdf "$@" 2>/dev/null | grep -v OpenBabel | md5sum; done | sort -u | wc -l; }
expect "results of four runs with --gen3D" "$([ "$(make --gen3D)" -gt 1 ] && echo several || echo one)" several
expect "results of four runs with --gen2D" "$(make --gen2D)" 1
