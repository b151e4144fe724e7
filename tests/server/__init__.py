"""Tests of the REST API, on a real server process."""
