"""Tests of `naksha.versioning.merges`."""
