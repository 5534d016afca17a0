# Sourced by each finding: a temporary folder, and packages unpacked in it with all that they need. Nothing is installed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

unpack() { # PACKAGE=VERSION...
    mkdir -p archives/partial root && : >status
    apt-get -qq -y --no-install-recommends --download-only -o Dir::State::status="$work/status" \
        -o Dir::Cache::archives="$work/archives" -o APT::Sandbox::User=root install "$@" >/dev/null 2>&1 || {
        echo "cannot be had here: $*" >&2
        exit 2
    }
    for package in archives/*.deb; do
        case $package in */libc6_* | */libc-bin_*) ;; *) dpkg-deb -x "$package" root ;; esac
    done
    export PATH=$work/root/usr/bin:$work/root/usr/lib/emboss/bin:$PATH
    LD_LIBRARY_PATH=$(find "$work/root" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    export LD_LIBRARY_PATH
}

# Splits FILE into one file for each record of FASTA: 1.fa, 2.fa, ... in a folder.
one_each() { # FILE FOLDER
    mkdir -p "$2"
    awk -v folder="$2" '/^>/ {n++} {print > (folder "/" n ".fa")}' "$1"
}

# Writes 50 proteins, drawn by chance but the same each time, to db.fa, and makes the database db of DIAMOND of them.
make_diamond_database() {
    python3 - <<'P'
import random
r = random.Random(4)
open("db.fa", "w").write("".join(f">d{k}\n{''.join(r.choices('ACDEFGHIKLMNPQRSTVWY', k=150))}\n" for k in range(50)))
P
    diamond makedb --in db.fa -d db --quiet
}

# Prints the sequence of that number in db.fa, from 0.
protein() { # NUMBER
    sed -n "$((2 * $1 + 2))p" db.fa
}

expect() { # WHAT SEEN EXPECTED
    printf '%s: %s\n' "$1" "$2"
    [ "$2" = "$3" ] || {
        echo "this has changed; it was: $3" >&2
        exit 1
    }
}
