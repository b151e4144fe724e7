"""Response bodies: feature collections, version documents, event streams.

Encoding and headers of a response belong here; choosing its content belongs to the routes.
"""
