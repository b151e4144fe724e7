"""The benchmarks of Naksha: `python -m benchmarks NAME`."""
