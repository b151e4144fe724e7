"""Tests of `naksha.sqlite.read`."""
