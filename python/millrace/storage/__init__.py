"""Where files are read from: copies on each node, how they get there, and how tools come to read them."""
