-- name: split_ids
-- Every n-th id, in order.
SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id) AS k FROM {{table}} WHERE t = ?)
 WHERE k % ? = 0

-- name: split_ends
SELECT DISTINCT txn_next FROM (
    SELECT txn_next, row_number() OVER (ORDER BY txn_next) AS k FROM naksha_hst
     WHERE t = ? AND txn_next > ? AND txn_next <= ?) WHERE k % ? = 0 ORDER BY 1

-- name: split_few
-- Whether a range of transactions wrote at most so many states.
SELECT count(*) <= ?4 FROM (
    SELECT 1 FROM {{table}} WHERE t = ?1 AND txn >= ?2 AND txn < ?3 LIMIT ?4 + 1)

-- name: split_source
SELECT {{columns}} FROM (
    SELECT s.*, {{document}} AS document, {{ended}} AS ended
      FROM {{from_}} WHERE {{conditions}}) AS s

-- name: column_i
s.i

-- name: column_id
s.id

-- name: column_geometry
s.geo

-- name: column_feature
s.document

-- name: column_properties
json_remove(json_extract(s.jsondata, '$.properties'), '$."@ns:com:here:xyz"')

-- name: column_members
nullif(json_remove(s.jsondata, '$.id', '$.type', '$.properties'), '{}')

-- name: column_uuid
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid')

-- name: column_puuid
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".puuid')

-- name: column_muuid
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".muuid')

-- name: column_txn
s.txn

-- name: column_txn_next
s.ended

-- name: column_seq_number
(SELECT v.seq_number FROM naksha_version v WHERE v.txn = s.txn)

-- name: column_version
s.version

-- name: column_action
s.action

-- name: column_author
s.author

-- name: column_app_id
s.app_id

-- name: column_created_at
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".createdAt')

-- name: column_updated_at
s.updated_at

-- name: column_rtcts
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".rtcts')

-- name: column_rtuts
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".rtuts')

-- name: column_tags
-- As JSON, which is decoded for many rows at once.
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".tags')

-- name: column_crid
json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".crid')

-- name: column_qrid
s.qrid

-- name: column_mrid
s.mrid

-- name: column_west
s.west

-- name: column_south
s.south

-- name: column_east
s.east

-- name: column_north
s.north

-- name: split_feature
s.jsondata

-- name: split_feature_at
CASE WHEN s.txn_next <= {{at}} THEN json_set(s.jsondata,
    '$.properties."@ns:com:here:xyz".txn_next', CAST(s.txn_next AS TEXT)) ELSE s.jsondata END

-- name: split_open
0

-- name: split_ended_at
CASE WHEN s.txn_next <= {{at}} THEN s.txn_next ELSE 0 END

-- name: split_first
s.id >= {{id}}

-- name: split_end
s.id < {{id}}

-- name: split_since
s.txn_next > {{after}} AND s.txn < s.txn_next

-- name: split_ended
s.txn_next > {{after}} AND s.txn_next <= {{until}}

