"""Tests of the code shared by the contracts."""
