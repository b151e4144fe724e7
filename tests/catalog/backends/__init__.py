"""Tests of `naksha.catalog.backends`."""
