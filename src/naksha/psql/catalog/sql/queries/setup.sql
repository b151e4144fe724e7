-- name: setup_lock
-- Concurrent setups wait for each other.
SELECT pg_advisory_xact_lock(hashtextextended('naksha catalog ' || $1::text, 0));

-- name: foreign_tables
-- The number of relations of a schema, and whether the catalog's are among them.
SELECT count(*) AS tables, coalesce(bool_or(relname = 'catalog_version'), false) AS is_ours
FROM pg_class WHERE relnamespace = to_regnamespace(quote_ident($1::text));

-- name: version
SELECT version FROM {{schema}}.catalog_version;

-- name: version_set
INSERT INTO {{schema}}.catalog_version (version) VALUES ($1::int4)
ON CONFLICT (one) DO UPDATE SET version = excluded.version;

-- name: synchronous_commit
SELECT current_setting('synchronous_commit');
