"""The server process: settings, workers, supervisor, logs and signals.

Only these modules read the environment, and never while they serve a request.
"""
