"""The server as a process: settings, workers, supervisor, logs and signals.

Only these modules read the environment; a request never reaches them.
"""
