"""Tests of `naksha.server.versions`."""
