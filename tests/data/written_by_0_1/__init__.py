"""Tests of `naksha.data.written_by_0_1`."""
