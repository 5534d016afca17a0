#!/usr/bin/env bash
# ProteoWizard 3.0.18342: of an mzML file in which the attribute `index` of the first spectrum is not 0, msconvert writes no spectrum,
# and ends with 0; without a filter for the level it may never end. The attribute `count` may be wrong.
. "$(dirname "$0")/common.bash"
unpack libpwiz-tools=3.0.18342-4+b1
for k in 1 2 3 4; do printf 'BEGIN IONS\nTITLE=%s\nPEPMASS=500.5\nCHARGE=2+\n100.5 10\n200.5 20\nEND IONS\n' $k; done >four.mgf
msconvert four.mgf --mzML --noindex --outfile four.mzML >/dev/null
# The last two spectra, as they are.
awk '/<spectrum / {n++} n < 1 || n > 2 || /<\/spectrumList>/ {print; if (/<\/spectrumList>/) n = 9}' four.mzML >two.mzML
sed 's/<spectrum index="2"/<spectrum index="0"/; s/<spectrum index="3"/<spectrum index="1"/' two.mzML >renumbered.mzML
spectra() { # FILE
    timeout 60 msconvert "$1" --mgf --filter 'msLevel 2' --outfile out.mgf >/dev/null 2>&1 && status=0 || status=$?
    printf '%s, status %s' "$(grep -c 'BEGIN IONS' out.mgf)" $status
    rm out.mgf
}
expect "spectra of four" "$(spectra four.mzML)" "4, status 0"
expect "of two with index 0 and 1" "$(spectra renumbered.mzML)" "2, status 0"
expect "of two with index 2 and 3" "$(spectra two.mzML)" "0, status 0"
