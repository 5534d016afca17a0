"""What scripts of ``awk``, ``sed`` and ``perl`` carry from one record to the next, as far as their text shows it.

It errs to the safe side: a script of which nothing is said treats each record by itself, but for what no reading of its
text can show; one of which something is said may do so all the same.
"""
