"""Jobs of the data pipeline; each is a function of a session and a specification."""
