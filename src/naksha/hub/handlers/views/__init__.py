"""Views: several spaces read and written as one.

Layers, their combined reads and writes, their cursors and version pins belong here.
"""
