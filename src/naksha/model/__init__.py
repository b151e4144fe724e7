"""Features, identities, versions and errors: pure values that do not depend on a storage.

Rules that hold everywhere belong here, such as the names of errors and all limits; I/O does not.
"""
