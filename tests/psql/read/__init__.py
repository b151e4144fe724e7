"""Tests of `naksha.psql.read`."""
