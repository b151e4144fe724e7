"""Tests of the semantics of writes to a space."""
