"""Tests of `naksha.sqlite.write`."""
