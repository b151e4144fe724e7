"""Tests of `naksha.sqlite.connection`."""
