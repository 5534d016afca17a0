"""Facts of this machine: cores, memory, filesystems, processes, locks, permissions, settings of site and user."""
