"""The parts of the job `load`: from files of any kind to features that are staged."""
