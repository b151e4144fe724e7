"""Tests of the pure model."""
