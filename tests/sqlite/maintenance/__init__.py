"""Tests of `naksha.sqlite.maintenance`."""
