"""Messages between the processes of a job, by MPI: how they are encoded, sealed and sent."""
