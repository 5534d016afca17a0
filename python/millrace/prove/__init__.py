"""Is a command exact in parallel? Runs it both ways on the user's sample, and compares the bytes."""
