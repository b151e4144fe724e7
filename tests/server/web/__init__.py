"""Tests of the map page, in a real browser against a real hub."""
