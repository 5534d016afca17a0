"""What a plain run imports; see ``docs/design/imports-on-demand.md``."""

import subprocess
import sys
from pathlib import Path

#: Packages that only some runs need.
OPTIONAL = {
    "boto3", "cloudpickle", "dask", "distributed", "fsspec", "hdfs_native", "jinja2", "mfusepy", "mpi4py", "numpy",
    "paramiko", "pyarrow", "pyrage", "requests", "rich", "sqlite3", "tornado",
}  # fmt: skip

RUN = """
import sys
from millrace.__main__ import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_plain_run_loads_nothing_optional(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a\n")
    with (tmp_path / "in.txt").open("rb") as given:
        done = subprocess.run(
            [sys.executable, "-c", RUN, "run", "--format", "lines", "--", "cat"], cwd=tmp_path, text=True,
            capture_output=True, stdin=given,
        )  # fmt: skip
    assert done.returncode == 0 and done.stdout == "a\n", done.stderr
    loaded = done.stderr.splitlines()[-1].split()
    assert not OPTIONAL.intersection(loaded)
    assert not [name for name in loaded if name.startswith(("millrace.extensions.", "millrace.cluster."))]
