"""Jobs of the data pipeline."""
