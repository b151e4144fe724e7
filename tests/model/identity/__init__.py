"""Tests of `naksha.model.identity`."""
