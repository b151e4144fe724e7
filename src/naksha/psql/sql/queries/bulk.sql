-- Filling new tables of a collection; see naksha.psql.bulk.fill and schema/110_bulk.sql.

-- name: stage_open
SELECT naksha_stage_open()

-- name: stage_create_leaf
SELECT naksha_stage_create_leaf($1, $2)

-- name: sweep_staging
SELECT naksha_sweep_staging()

-- name: bulk_begin
SELECT txn, first_i, mark, after_i FROM naksha_bulk_begin($1, $2::jsonb, $3::jsonb)

-- name: bulk_finish
SELECT naksha_logged_txn() AS logged FROM naksha_bulk_finish($1, $2, $3, $4, (
    SELECT ST_SetSRID(ST_Extent(a::geometry), 4326) FROM unnest($5::bytea[]) AS t(a)), $6)
