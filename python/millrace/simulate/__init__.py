"""A cluster without a cluster: the scheduling code of real runs, on a simulated clock."""
