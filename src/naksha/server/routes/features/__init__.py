"""Endpoints of the features of a space.

Reading, searching, iterating, tiles, writing and copying belong here.
"""
