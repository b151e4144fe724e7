"""Tests of `naksha.server.middleware`."""
