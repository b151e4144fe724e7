"""Tests of `naksha.hub.storages`."""
