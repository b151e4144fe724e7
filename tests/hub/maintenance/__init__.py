"""Tests of maintenance by the hub."""
