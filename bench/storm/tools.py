"""Tools that give the right bytes, and do something besides that no tool should."""

from __future__ import annotations

from collections.abc import Sequence

#: What all have in common. ``$1`` is the input, ``$2`` the database, ``$3`` the output (none: standard output), ``$4`` another.
#: A record gives a line of its name, its length and the database; ``once NAME`` is true the first time in a scenario.
COMMON = r"""#!/bin/bash
# version v1
[ "$1" != - ] || { cat > .input; set -- .input "${@:2}"; }
if [ -n "$3" ]; then exec 3> "$3"; else exec 3>&1; fi
work() {
  [ -z "$HEADER" ] || echo "name,length,database"
  awk -v db="$(cat "$2")" -v version="$(sed -n '2s/.* //p' "$0")" -v some="$SOME" '
    function tell() { if (name != "" && (some == "" || n % 3)) printf "%s,%d,%s%s,%s\n", name, n, db, version, pad }
    BEGIN { pad = sprintf("%200s", ""); gsub(/ /, "=", pad) }
    /^>/ { tell(); name = substr($1, 2); n = 0; next } { n += length($0) } END { tell() }' "$1"
}
has() { grep -qx ">$1" "$IN"; }
once() { mkdir "$STATE/$1" 2>/dev/null; }
export -f work
IN=$1; SELF=$0; ulimit -c 0; echo $$ >> "$STATE/pids"; sleep "$SLEEP"
[ -z "$4" ] || grep '^>' "$1" | cut -c2- > "$4"
"""

#: Any layout of outputs.
ANYWHERE = {
    "sound": 'work "$@" >&3',
    "late": 'work "$@" > .all; head -c 30 .all >&3; sleep 0.05; tail -c +31 .all >&3',
    "background": '(sleep 0.05; work "$@" >&3) &',
    "substitution": 'cat "$1" > >(sleep 0.05; cat > .copy; work .copy "$2" >&3)',
    "session": "setsid bash -c 'sleep 0.05; work \"$@\" >&3' \"$0\" \"$1\" \"$2\" &",
    "hidden daemon": 'env -i PATH="$PATH" STORM="$STORM" setsid sleep 0.3 3>&- & work "$@" >&3',
    "nothing for some": 'work "$@" >&3',
    "deaf to errors": 'work "$@" >&3 2> /dev/null; exit 0',
    "crashes once": 'if has r13 && once r13; then kill -SEGV $$; fi; work "$@" >&3',
    "kills its group once": 'if has r13 && once r13; then kill -KILL 0; fi; work "$@" >&3',
    "hangs once": 'if has r13 && once r13; then echo $$ > "$STATE/hung"; sleep 1000; fi; work "$@" >&3',
    "stops itself once": 'if has r13 && once r13; then echo $$ > "$STATE/hung"; kill -STOP $$; fi; work "$@" >&3',
    "fails once": 'work "$@" >&3; if has r13 && once r13; then echo "no luck" >&2; exit 3; fi',
    "fails for some": 'has r13 && { echo "cannot do r13" >&2; exit 3; }; work "$@" >&3',
    "crashes for some": 'if has r13 || has r14; then kill -ABRT $$; fi; work "$@" >&3',
    "writes a file of the user's": 'work "$@" > scratch; sleep 0.01; cat scratch >&3',
    "talks": 'head -c 300000 /dev/zero | tr "\\0" x >&2; work "$@" >&3',
    "leaves a pipe": 'mkfifo left; work "$@" >&3',
    "ignores signals": "trap '' TERM INT HUP QUIT USR1; sleep 0.2; work \"$@\" >&3",
    "forks": 'for k in 1 2 3 4 5 6 7 8; do (sleep 0.0$k) & done; work "$@" >&3',
    "leaves a mess": 'mkdir -p a/b/c; chmod 0 a/b; for k in 1 2 3 4 5; do echo x > "file $k"; done; work "$@" >&3',
    "takes memory": 'head -c 90000000 /dev/zero | tail -c 90000000 | { sleep 0.1; cat > /dev/null; }; work "$@" >&3',
}  # fmt: skip

#: An output with a name.
IN_A_FILE = {
    "removes its input": 'work "$@" >&3; rm -f "$1"',
    "renames": 'work "$@" > .new; mv .new "$3"',
    "links": 'work "$@" > real; ln -sf real "$3"',
    "output once missing": 'if has r13 && once r13; then rm "$3"; else work "$@" >&3; fi',
    "output once a pipe": 'if has r13 && once r13; then rm "$3"; mkfifo "$3"; else work "$@" >&3; fi',
    "output once a folder": 'if has r13 && once r13; then rm "$3"; mkdir "$3"; else work "$@" >&3; fi',
}

BODIES = {**ANYWHERE, **IN_A_FILE}

#: Records that have no result, whatever is done.
CANNOT: dict[str, Sequence[str]] = {"fails for some": ("r13",), "crashes for some": ("r13", "r14")}


def script(name: str) -> str:
    """The source of a tool."""
    return COMMON + BODIES[name] + "\n"


def result(content: bytes, database: str, version: str, *, some: bool) -> bytes:
    """What a sound tool writes, without a header."""
    lines = []
    for record in content.split(b">")[1:]:
        head, _, sequence = record.partition(b"\n")
        n = sum(map(len, sequence.split(b"\n")))
        if head.split() and not (some and n % 3 == 0):
            lines.append(f"{head.split()[0].decode()},{n},{database}{version},{'=' * 200}\n")
    return "".join(lines).encode()


def names(content: bytes) -> list[str]:
    """The names of the records."""
    return [record.split(b"\n")[0].decode() for record in content.split(b">")[1:]]
