"""The tests of the benchmarks and their frame."""
