"""Tests of `naksha.psql.maintenance`."""
