-- The transaction log; `naksha.psql.read.log` combines the fragments.

-- name: log_window
-- The requested transactions [first, until): after (before, if newest first) version $1, published
-- from $3 on and before $4.
SELECT greatest(
         CASE WHEN $2::bool THEN 0 ELSE coalesce(
             (SELECT txn + 1 FROM naksha_version WHERE seq_number <= $1::int8
               ORDER BY seq_number DESC LIMIT 1), 0) END,
         CASE WHEN $3::int8 IS NULL THEN 0 ELSE coalesce(
             (SELECT txn FROM naksha_version WHERE seq_ts >= naksha_time_of($3)
               ORDER BY seq_ts, seq_number LIMIT 1), 9223372036854775807) END) AS first,
       least(
         coalesce((SELECT txn + 1 FROM naksha_version ORDER BY seq_number DESC LIMIT 1), 0),
         CASE WHEN $2::bool AND $1 > 0 THEN
             (SELECT txn FROM naksha_version WHERE seq_number >= $1 ORDER BY seq_number LIMIT 1)
             END,
         CASE WHEN $4::int8 IS NOT NULL THEN
             (SELECT txn FROM naksha_version WHERE seq_ts >= naksha_time_of($4)
               ORDER BY seq_ts, seq_number LIMIT 1) END) AS until

-- name: log_found
-- All rows of a transaction have the same author, application and overlay, so any row can be tested
-- for all conditions.
SELECT DISTINCT t.txn FROM naksha_tx t WHERE {{conditions}}
 ORDER BY t.txn {{direction}} LIMIT {{limit}}

-- name: log_rows
SELECT t.txn, t.seq_number, t.action, t.id, t.app_id, t.author, t.overlay, t.created, t.updated,
       t.deleted, t.purged, t.msg_text, t.msg_json, t.msg_binary,
       naksha_epoch_ms(t.ts) AS ts_ms, naksha_epoch_ms(t.seq_ts) AS seq_ms,
       ST_XMin(t.bbox) AS west, ST_YMin(t.bbox) AS south, ST_XMax(t.bbox) AS east,
       ST_YMax(t.bbox) AS north
  FROM naksha_tx t
 WHERE t.txn = ANY($1::int8[]) AND t.txn >= $2::int8 AND t.txn <= $3::int8
 ORDER BY CASE WHEN $4::bool THEN -t.txn ELSE t.txn END, t.i

-- name: log_between
t.txn >= {{first}} AND t.txn < {{until}}

-- name: log_on_main
t.overlay = 0

-- name: log_on_branches
t.overlay = ANY({{overlays}}) AND t.overlay <> 0

-- name: log_on
t.overlay = ANY({{overlays}})

-- name: log_authors
t.author = ANY({{authors}})

-- name: log_authors_or_none
(t.author = ANY({{authors}}) OR t.author IS NULL)

-- name: log_started_from
t.ts >= to_timestamp({{bound}} / 1000.0)

-- name: log_started_to
t.ts < to_timestamp({{bound}} / 1000.0)

-- name: log_app_ids
t.app_id = ANY({{app_ids}})

-- name: log_collections
t.id = ANY({{collections}}) AND t.action IN ('MODIFY_FEATURES', 'MODIFY_COLLECTION')

-- name: log_box
-- The operator works on float32 boxes, so the numbers are compared as well.
t.action = 'MODIFY_FEATURES'
AND t.bbox && ST_MakeEnvelope({{west}}, {{south}}, {{east}}, {{north}}, 4326)
AND ST_XMin(t.bbox) <= {{east}} AND ST_XMax(t.bbox) >= {{west}}
AND ST_YMin(t.bbox) <= {{north}} AND ST_YMax(t.bbox) >= {{south}}

-- name: log_text
t.action = 'MESSAGE' AND strpos(lower(t.msg_text), lower({{text}})) > 0

-- name: log_text_beside
-- The message is a row of its own.
EXISTS (SELECT FROM naksha_tx m
         WHERE m.txn = t.txn AND m.action = 'MESSAGE'
           AND strpos(lower(m.msg_text), lower({{text}})) > 0)

-- name: cell_log
SELECT * FROM naksha_cell_log($1, $2, $3)

-- name: pending_cells
-- The cells that committed transactions have changed after one, published or not.
SELECT t.txn, t.id, t.overlay, coalesce(t.cells, '{1}') AS cells
  FROM naksha_tx t
 WHERE t.txn > $1 AND t.action <> 'MESSAGE' AND t.cells IS DISTINCT FROM '{}'
 ORDER BY t.txn LIMIT $2

-- name: last_cell_change
SELECT c.last, c.unfolded,
       naksha_is_settled(coalesce((SELECT max(v.txn) FROM naksha_version v), 0), $4) AS is_settled
  FROM naksha_last_cell_change($1, $2, $3) AS c
