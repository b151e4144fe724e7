"""Tests of `naksha.hub.tiles`."""
