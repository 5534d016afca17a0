"""The strategies of ``--write``, by which the processes of a job write its outputs; see ``strategy.WriteStrategy``."""
