"""Merge, rebase, and the conflicts they leave: merge bases, combined features, resolutions."""
