"""Authentication and authorization: keys, tokens, rights, roles and row-level rights.

What decides whether an actor may do something belongs here; the HTTP header is read by the server.
"""
