"""Tests of `naksha.hub.feed`."""
