"""The check of exactness: runs a command serially and in parallel on the user's sample, and compares the bytes."""
