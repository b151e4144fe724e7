"""The jobs of the data pipeline: each a function of a session and a specification."""
