"""Tests of the OGC API."""
