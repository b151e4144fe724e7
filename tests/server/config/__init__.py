"""Tests of `naksha.server.config`."""
