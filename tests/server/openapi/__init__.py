"""Tests of `naksha.server.openapi`."""
