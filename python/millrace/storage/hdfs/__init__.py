"""Files in HDFS: where their blocks are, and folders whose files lie together."""
