-- name: diagnosis_postgis
SELECT e.installed_version, e.default_version
  FROM (SELECT) AS always LEFT JOIN pg_available_extensions e ON e.name = 'postgis'

-- name: diagnosis_database
SELECT current_database()

-- name: diagnosis_rights
SELECT current_user::text AS role,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       n.oid IS NOT NULL AS exists,
       coalesce(has_schema_privilege(n.oid, 'USAGE'), false) AS may_use
  FROM (SELECT) AS always LEFT JOIN pg_namespace n ON n.nspname = $1

-- name: diagnosis_locks
SELECT (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = $1 AND c.relkind IN ('r', 'p')) AS relations,
       current_setting('max_connections')::int8
           + current_setting('max_prepared_transactions')::int8 AS slots,
       current_setting('max_locks_per_transaction')::int8 AS per_slot

-- name: diagnosis_reserved
SELECT current_setting('superuser_reserved_connections')::int

-- name: diagnosis_connections
SELECT current_setting('max_connections')::int
           - current_setting('superuser_reserved_connections')::int AS usable,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used

-- name: diagnosis_clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8

-- name: diagnosis_publication
SELECT unpublished, held_by FROM naksha_publication()
