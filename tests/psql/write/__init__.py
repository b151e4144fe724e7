"""Tests of `naksha.psql.write`."""
