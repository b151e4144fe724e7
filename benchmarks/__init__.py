"""Benchmarks of Naksha: `python -m benchmarks NAME`."""
