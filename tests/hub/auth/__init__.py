"""Tests of authentication and authorization."""
