"""Tests of `naksha.psql.connection`."""
