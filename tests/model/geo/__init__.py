"""Tests of `naksha.model.geo`."""
