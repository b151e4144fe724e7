"""Parts of the job `load`: from files of any supported format to staged features."""
