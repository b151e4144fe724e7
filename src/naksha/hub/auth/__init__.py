"""Authentication and authorization: keys, tokens, rights, roles and row-level rights.

Authorization decisions belong here; the server parses the HTTP headers.
"""
