"""Tests of `naksha.hub.render`."""
