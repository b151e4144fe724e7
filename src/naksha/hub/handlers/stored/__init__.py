"""Handler of a collection in a storage, one module per kind of request.

Requests that a stored space answers itself belong here.
"""
