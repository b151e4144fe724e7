"""Code that several storages or catalog backends share.

A function belongs here when two backends need it and it depends on neither; contracts belong one
level up.
"""
