"""Random scenarios of a tool that misbehaves, somebody who interferes, and kills: ``python -m bench.storm``."""
