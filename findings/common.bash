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

expect() { # WHAT SEEN EXPECTED
    printf '%s: %s\n' "$1" "$2"
    [ "$2" = "$3" ] || {
        echo "this has changed; it was: $3" >&2
        exit 1
    }
}
