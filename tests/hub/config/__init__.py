"""Tests of `naksha.hub.config`."""
