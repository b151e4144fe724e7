"""The handler of a collection in a storage, one module per kind of request.

A request that a stored space answers itself belongs here.
"""
