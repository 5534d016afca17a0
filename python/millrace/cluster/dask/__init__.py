"""Runs on a Dask cluster: the executor, its connection to Dask's scheduler, and the slots in Dask's workers."""
