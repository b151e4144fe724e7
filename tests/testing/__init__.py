"""Tests of the shipped test tools."""
