"""From one command to a job on many nodes: finds the allocation, starts the ranks, and starts them again. Knows no MPI."""
