"""Tests of `naksha.psql.bulk`."""
