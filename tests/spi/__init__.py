"""Tests of what the contracts share."""
