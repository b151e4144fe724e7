"""Tests of `naksha.psql.schema`."""
