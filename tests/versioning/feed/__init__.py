"""Tests of `naksha.versioning.feed`."""
