"""Files behind a URL as a folder that any program can open: a view for reading, by FUSE."""
