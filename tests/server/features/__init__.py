"""Tests of `naksha.server.features`."""
