"""Features, identities, versions and errors: pure values that know no storage."""
