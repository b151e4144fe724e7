"""Tests of `naksha.sqlite.schema`."""
