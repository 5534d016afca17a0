"""The path from one command to a job on many nodes: allocation, launcher, supervisor, restarts. Imports no MPI."""
