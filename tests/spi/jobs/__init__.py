"""Tests of `naksha.spi.jobs`."""
