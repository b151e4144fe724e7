"""Code shared by several storages or catalog backends.

A function belongs here when two backends need it and it depends on neither; contracts belong one
level up.
"""
