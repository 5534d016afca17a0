"""Run the serial command of a rule on all threads of the rule, by Millrace."""

from snakemake.shell import shell

options = snakemake.params.get("options", "")  # noqa: F821 (Snakemake defines it)
log = snakemake.log_fmt_shell(stdout=False, stderr=True)  # noqa: F821

shell(f"millrace run --slots {snakemake.threads} {options} -- {snakemake.params.command} {log}")  # noqa: F821
