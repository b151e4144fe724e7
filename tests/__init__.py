"""The tests of Naksha."""
