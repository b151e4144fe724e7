"""The reference storage, on PostgreSQL with PostGIS."""
