"""One file for each kind of place that files are read from, each with the client that its users have anyway."""
