"""Simulation of a job on a cluster: the scheduling code of real runs, on a simulated clock."""
