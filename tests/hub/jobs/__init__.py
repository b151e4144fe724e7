"""Jobs: as processes, by the command line, and by the hub."""
