"""The strategies of ``--write``, by which the processes of a job write its outputs.

See ``millrace.cluster.write.write_strategy.WriteStrategy``.
"""
