"""Views of running jobs, read from their run directories alone."""
