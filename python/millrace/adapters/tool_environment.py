"""Environment variables that each known family of tools reads, and their effect on batches.

Each variable is of one kind. *Passed*: each task reads it as the serial tool would, and it makes no record depend on
others. *Counted*: it sets limits of batches or places of files, and the adapter uses it. *Refused*: the command is
refused before it starts. ``tests/exact/test_environment.py`` traces the variables that the installed programs read, and
compares them with these tables; the values of BLAST's are tried there on all formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from millrace.core.errors import RefusedError


class VariableTable(NamedTuple):
    """The variables of one family, by kind; names are globs, and the first kind that matches counts."""

    #: Counted variables, with the module that uses each.
    counted: Mapping[str, str] = {}
    #: Refused variables, each with the reason, which completes "the environment variable NAME ...".
    refused: Mapping[str, str] = {}
    passed: tuple[str, ...] = ()

    def classify_variable(self, name: str) -> str:
        """Return ``counted``, ``refused`` or ``passed``; empty: the tool is not known to read it."""
        kinds: tuple[tuple[str, Iterable[str]], ...] = (
            ("counted", self.counted), ("refused", self.refused), ("passed", self.passed),
        )  # fmt: skip
        return next((kind for kind, names in kinds if _find_matching_pattern(name, names)), "")

    def select_deciding(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of ``environ`` that are counted or refused, with their values."""
        return {name: environ[name] for name in environ if self.classify_variable(name) in ("counted", "refused")}


def _find_matching_pattern(name: str, patterns: Iterable[str]) -> str:
    # The letters before the first wildcard are compared first: compiling a glob takes 0.5 ms.
    return next(
        (each for each in patterns if name.startswith(re.split(r"[*[]", each)[0]) and fnmatchcase(name, each)), ""
    )


#: Variables of the C library, of run-time libraries of compilers, and of the shell: any program may read them.
ANY_PROGRAM = (
    "HOME", "PATH", "PWD", "TMPDIR", "LANG", "LANGUAGE", "LC_*", "LOCPATH", "NLSPATH", "TZ", "TZDIR", "MALLOC_*",
    "GLIBC_TUNABLES", "GLIBCXX_TUNABLES", "LD_*", "GCONV_PATH", "OMP_*", "GOMP_*", "ACC_*", "POSIXLY_CORRECT", "COLUMNS", "TERM",
)  # fmt: skip

_SETTINGS_ELSEWHERE = "changes where BLAST finds its settings, which millrace does not follow"
_SHARED_LOG = "has all tasks write to one file"

BLAST = VariableTable(
    counted={
        "BATCH_SIZE": "millrace.adapters.blast.query_sizes",
        "CHUNK_SIZE": "millrace.adapters.blast.query_sizes",
        "OVERLAP_CHUNK_SIZE": "millrace.adapters.blast.query_sizes",
        "BLASTDB": "millrace.adapters.blast.search_path",
        "NCBI_CONFIG__BLAST__BLASTDB": "millrace.adapters.blast.search_path",
        "HOME": "millrace.adapters.blast.search_path",
        "NCBI": "millrace.adapters.blast.search_path",
    },
    refused={
        "NCBI_CONFIG_PATH": _SETTINGS_ELSEWHERE,
        "NCBI_CONFIG_OVERRIDES": _SETTINGS_ELSEWHERE,
        "NCBI_CONFIG_I[Nn][Hh][Ee][Rr][Ii][Tt][Ss]__*": _SETTINGS_ELSEWHERE,
        "NCBI_CONFIG__NCBI__DONT_USE_NCBIRC": _SETTINGS_ELSEWHERE,
        "NCBI_CONFIG__NCBI__INHERITS": _SETTINGS_ELSEWHERE,
        "NCBI_DONT_USE_LOCAL_CONFIG": _SETTINGS_ELSEWHERE,
        "NCBI_DONT_USE_NCBIRC": _SETTINGS_ELSEWHERE,
        "NCBI_CONFIG__L[Oo][Gg]__F[Ii][Ll][Ee]": _SHARED_LOG,
        "BLASTAPI_PROFILE_LOG": _SHARED_LOG,
        "BLAST_MT_QUERY_BATCH_SIZE": "changes which queries share a pass with -mt_mode 1",
    },
    passed=(
        # How hits are searched and scored, query by query.
        "ADAPTIVE_CBS", "OLD_FSC", "PRE_FETCH_SEQS_LIMIT", "BLASTMAT", "NCBI_BLAST_DISABLE_OPENMP", "MAPPER_NONMAPPING_AS_NULL",
        "BLASTINPUT_GEN_DELTA_SEQ", "CTOOLKIT_COMPATIBLE",
        # Usage reports to NCBI, and the names in them.
        "BLAST_USAGE_REPORT", "BLAST_DOCKER", "BLAST_ELB_*", "DO_NOT_TRACK", "NCBI_USAGE_REPORT_*", "SERVER_PORT", "CONN_*",
        # Messages, limits and internals of NCBI's library; each is an entry of its settings, too.
        "ABORT_ON_THROW", "DEBUG_*", "DIAG_*", "NCBI_CONTEXT_FIELDS", "NCBI_HOST", "NCBI_STATIC_ARRAY_COPY_WARNING",
        "OBJECTS_PACK_GENERAL", "OBJMGR_*", "SERIAL_*", "THREAD_*", "NCBI_CONFIG__FILEAPILOGGING",
        *(f"NCBI_CONFIG__{section}__*" for section in (
            "BLAST", "CONN", "DEBUG", "Debug", "DIAG", "Diag", "LOG", "Log", "MAPPER", "Mapper", "NCBI", "OBJECTS", "OBJMGR", "SERIAL",
            "THREAD", "Thread",
        )),
    ),
)  # fmt: skip

#: A file that HMMER or Infernal would find only in one of the folders that ``BLASTDB``, ``PFAMDB`` or ``RFAMDB`` name is
#: refused as missing.
HMMER = VariableTable(
    counted={"HMMER_NCPU": "millrace.adapters.hmmer.adapter"}, passed=("BLASTDB", "PFAMDB", "HMMERDB")
)
INFERNAL = VariableTable(counted={"INFERNAL_NCPU": "millrace.adapters.infernal"}, passed=("BLASTDB", "RFAMDB"))

TABLES: dict[str, VariableTable] = {
    "blast": BLAST,
    "hmmer": HMMER,
    "infernal": INFERNAL,
    "diamond": VariableTable(),
    "mmseqs": VariableTable(refused={"RUNNER": "has another program start parts of MMseqs2"}, passed=("MMSEQS_*", "TTY")),
    "minimap2": VariableTable(),
    "muscle": VariableTable(passed=("MUSCLE_MXPATH",)),
    # A shell script and its helpers, which each task runs in its own folder; awk's variables are the same for all.
    "mafft": VariableTable(passed=("MAFFT_*", "FASTA_4_MAFFT", "AWK*", "GAWK_*", "*_CHAIN_MAX", "MAGIC", "NHAT", "PMA_VERBOSITY", "SIMPLE_BACKUP_SUFFIX", "TIDYMEM")),
    "obabel": VariableTable(passed=("BABEL_DATADIR", "BABEL_LIBDIR", "BABEL_DAH", "PIXMAN_DISABLE")),
    "vina": VariableTable(),
    "dock6": VariableTable(),
}  # fmt: skip


def check_variables(family: str, environ: Mapping[str, str]) -> None:
    """Refuse variables with which batches of a known tool may not add up to its serial output.

    Raises:
        RefusedError: One is set.
    """
    table = TABLES.get(family, VariableTable())
    for name in environ:
        if table.classify_variable(name) == "refused":
            raise RefusedError(
                f"the environment variable {name} {table.refused[_find_matching_pattern(name, table.refused)]}",
                f"unset {name}",
            )
