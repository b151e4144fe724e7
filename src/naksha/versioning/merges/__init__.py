"""Merge, rebase, and the conflicts that they leave.

Finding a merge base, combining features and ending conflicts belong here.
"""
