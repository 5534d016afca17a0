"""The ways in which the processes of a job write its outputs: one file each, behind `strategy.WriteStrategy`."""
