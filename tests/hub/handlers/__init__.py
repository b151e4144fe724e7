"""Tests of the event handlers, each through a real hub on real storages."""
