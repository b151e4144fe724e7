"""Conformance of versions: log, retention, branches, forks and waiting for versions."""
