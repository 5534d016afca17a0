"""A read-only FUSE view of the files behind a URL, as a folder that any program can open."""
