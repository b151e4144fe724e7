"""Tests of the catalog's index."""
