-- Indices that are built while others write; see naksha.psql.schema.online.

-- name: lock_timeout
SELECT set_config('lock_timeout', $1, $2)

-- name: online_index_there
SELECT to_regclass(quote_ident($1)) IS NOT NULL

-- name: online_index
-- On the parent alone, which takes a moment whatever is in the partitions.
CREATE INDEX {{index}} ON ONLY {{table}} {{columns}}

-- name: online_partitions
-- Partitions that are missing from the index; `built` is whether an unattached one exists and is
-- valid.
SELECT c.relname AS part, c.relname || $2 AS index, x.indisvalid AS built
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
  LEFT JOIN pg_index x ON x.indexrelid = to_regclass(quote_ident(c.relname || $2))
 WHERE i.inhparent = to_regclass(quote_ident($1)) AND NOT i.inhdetachpending
   AND NOT EXISTS (SELECT FROM pg_inherits p JOIN pg_index y ON y.indexrelid = p.inhrelid
                    WHERE p.inhparent = to_regclass(quote_ident($1 || $2))
                      AND y.indrelid = c.oid)
 ORDER BY c.relname

-- name: online_partition_index
CREATE INDEX CONCURRENTLY {{index}} ON {{part}} {{columns}}

-- name: online_partition_drop
DROP INDEX CONCURRENTLY {{index}}

-- name: online_partition_attach
ALTER INDEX {{parent}} ATTACH PARTITION {{index}}

-- name: tables_to_mend
SELECT tbl FROM naksha_tables_to_mend() AS tbl

-- name: mend_triggers
SELECT naksha_mend_triggers($1)
