"""Tests of `naksha.sqlite.bulk`."""
