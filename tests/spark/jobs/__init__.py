"""The jobs of the data pipeline."""
