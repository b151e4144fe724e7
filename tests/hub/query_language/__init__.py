"""Tests of the language of query strings."""
