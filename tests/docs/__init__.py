"""Tests of the documents: what they show is run."""
