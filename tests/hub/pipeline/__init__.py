"""Tests of `naksha.hub.pipeline`."""
