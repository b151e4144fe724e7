"""Tests of `naksha.catalog.cluster`."""
