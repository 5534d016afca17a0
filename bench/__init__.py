"""Millrace against what people use today, side by side in one run: ratios, not seconds. See ``bench/README.md``."""
