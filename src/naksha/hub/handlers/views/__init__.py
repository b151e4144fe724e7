"""Views: several spaces read and written as one.

Layers, their merged reading, their cursors and pins belong here.
"""
