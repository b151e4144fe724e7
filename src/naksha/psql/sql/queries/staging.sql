-- Staging; see naksha.psql.bulk.stage, naksha.psql.bulk.apply_staged and schema/115_staging.sql.

-- name: staged_look
SELECT info, is_empty FROM naksha_staged_look($1)

-- name: staged_open
-- The lease begins now, by the database's clock or an injected one.
SELECT naksha_staged_open($1, $2, $3, $4,
    coalesce(to_timestamp($5::int8 / 1000.0), now()) + make_interval(secs => $6))

-- name: staged_renew
SELECT naksha_staged_renew($1,
    coalesce(to_timestamp($2::int8 / 1000.0), now()) + make_interval(secs => $3))

-- name: staged_close
SELECT naksha_staged_close($1, $2, $3,
    coalesce(to_timestamp($4::int8 / 1000.0), now()) + make_interval(secs => $5))

-- name: staged_release
SELECT naksha_staged_release($1, $2)

-- name: sweep_staged
SELECT naksha_sweep_staged(coalesce(to_timestamp($1::int8 / 1000.0), now()))

-- name: sweep_jobs
SELECT naksha_sweep_jobs($1)

-- name: staged_parts
-- The existing ones of the requested parts; they cannot be dropped until the transaction ends.
SELECT name, collection, id_prefix, points_only, counts, has_locks,
       coalesce(pg_table_size(to_regclass(quote_ident(name))), 0) AS bytes FROM naksha_staged
 WHERE job = $1 AND name = ANY($2) AND counts IS NOT NULL ORDER BY name FOR UPDATE

-- name: staged_fill
SELECT naksha_staged_fill($1, $2, $3, $4, $5, $6, $7)

-- name: staged_index
SELECT features, area::bytea AS area, cells FROM naksha_staged_index($1, $2, $3)

-- name: staged_put
SELECT action, features, naksha_logged_txn() AS logged
  FROM naksha_staged_put($1, $2, $3, $4, $5, $6)

-- name: staged_delete
SELECT deleted, naksha_logged_txn() AS logged
  FROM naksha_staged_delete($1, $2, $3, $4) AS deleted

-- name: staged_note
SELECT naksha_staged_note($1, $2)

-- name: staged_compare
SELECT naksha_staged_compare($1, $2::text[]::jsonb[])

-- name: staged_absent
SELECT naksha_staged_absent($1, $2)

-- name: staged_gather
SELECT naksha_staged_gather($1, $2)
