"""The tests of the shipped test tools."""
