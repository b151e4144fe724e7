"""Jobs: as processes, from the command line, and from the hub."""
