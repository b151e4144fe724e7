"""Tests of the PostgreSQL storage alone."""
