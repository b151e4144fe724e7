"""Features, identities, versions and errors: pure values that do not depend on a storage."""
