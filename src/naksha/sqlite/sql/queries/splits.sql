-- name: split_ids
-- Every so many ids, in their order.
SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS k FROM {{table}}) WHERE k % ? = 0

-- name: split_ends
SELECT DISTINCT txn_next FROM (
    SELECT txn_next, row_number() OVER (ORDER BY txn_next) AS k FROM {{hst}}
     WHERE txn_next > ? AND txn_next <= ?) WHERE k % ? = 0 ORDER BY 1

-- name: split_source
SELECT s.id, s.geo, {{document}}, json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid'),
       s.txn, s.version, s.action, s.author, s.app_id,
       json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".createdAt'), s.updated_at, s.qrid,
       s.west, s.south, s.east, s.north
  FROM {{from_}} WHERE {{conditions}}

-- name: split_feature
s.jsondata

-- name: split_feature_at
CASE WHEN s.txn_next <= {{at}} THEN json_set(s.jsondata,
    '$.properties."@ns:com:here:xyz".txn_next', CAST(s.txn_next AS TEXT)) ELSE s.jsondata END

-- name: split_first
s.id >= {{id}}

-- name: split_end
s.id < {{id}}

-- name: split_since
s.txn_next > {{after}} AND s.txn < s.txn_next

-- name: split_ended
s.txn_next > {{after}} AND s.txn_next <= {{until}}

