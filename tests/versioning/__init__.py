"""Tests of naksha.versioning."""
