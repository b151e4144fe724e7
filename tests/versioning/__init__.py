"""Tests of `naksha.versioning`."""
