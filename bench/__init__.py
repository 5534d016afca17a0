"""Millrace against what people use today, side by side: ratios, not seconds. See ``bench/README.md``."""
