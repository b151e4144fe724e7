-- Bulk load; see naksha.psql.bulk.bulk_writer and schema/110_bulk.sql.

-- name: stage_open
SELECT naksha_stage_open()

-- name: stage_release
SELECT pg_advisory_unlock(naksha_lock_class(), naksha_stage_key($1))

-- name: stage_create
SELECT naksha_stage_create($1, $2)

-- name: stage_create_leaf
SELECT naksha_stage_create_leaf($1, $2)

-- name: stage_number
SELECT nextval('naksha_stage_seq')

-- name: stage_count
SELECT count(*) FROM {{table}}

-- name: stage_leaf
SELECT features, area::bytea AS area, cells FROM naksha_stage_leaf($1, $2, $3, $4, $5, $6)

-- name: stage_index
SELECT features, area::bytea AS area, cells FROM naksha_stage_index($1, $2, $3)

-- name: stage_drop
SELECT naksha_stage_drop($1)

-- name: sweep_staging
SELECT naksha_sweep_staging()

-- name: bulk_look
SELECT naksha_bulk_look($1)

-- name: bulk_begin
SELECT txn, first_i, mark, after_i FROM naksha_bulk_begin($1, $2::jsonb, $3::jsonb)

-- name: bulk_finish
SELECT naksha_logged_txn() AS logged FROM naksha_bulk_finish($1, $2, $3, $4, (
    SELECT ST_SetSRID(ST_Extent(a::geometry), 4326) FROM unnest($5::bytea[]) AS t(a)), $6)
