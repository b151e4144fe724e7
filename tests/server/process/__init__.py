"""Tests of `naksha.server.process`."""
