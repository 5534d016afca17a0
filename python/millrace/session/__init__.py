"""A run from end to end: become a rank (`rank`), take over a run directory (`claim`), carry the run out (`carry_out`).

What carries it out reads what earlier starts left (`earlier`), connects the parts (`wiring`), and ends in order (`ending`).
"""
