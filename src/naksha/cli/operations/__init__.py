"""Verbs that keep an installation alive: status, diagnosis, maintenance, backup and restore."""
