"""Tests of `naksha.spi.support`."""
