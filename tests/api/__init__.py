"""Tests of the synchronous Python API."""
