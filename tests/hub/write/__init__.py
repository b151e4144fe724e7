"""Tests of what a write to a space means."""
