"""Tests of the `naksha` command."""
