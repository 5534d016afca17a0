"""Jobs in phases: several tools in one job, with growing inputs, shared slots, one resume and one exit code."""
