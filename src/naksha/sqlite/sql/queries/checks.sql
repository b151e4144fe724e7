-- What a file keeps twice, compared: features (or versions) of which one place says something else
-- than the other. Each gives id, txn and a message, at most ?1 rows. Trees hold numbers of 32 bits,
-- rounded outward: a box there must cover the one that is meant, and need not be the same.

-- name: check_tree
-- A query for an area finds what the tree has, and nothing else.
SELECT t.id, t.txn, 'the tree of places does not have it where it is'
  FROM {{table}} t LEFT JOIN {{tree}} b ON b.n = t.n
 WHERE t.west IS NOT NULL
   AND NOT coalesce(b.west <= t.west AND b.east >= t.east AND b.south <= t.south
                    AND b.north >= t.north, false)
UNION ALL
SELECT t.id, t.txn, 'the tree of places has what is not there'
  FROM {{tree}} b LEFT JOIN {{table}} t ON t.n = b.n WHERE t.west IS NULL
 LIMIT ?1

-- name: check_past
-- Of the past it also tells the time, in ordinals of transactions: up to the last one before the
-- end, as far as that is known. Nobody saw what ended with its own transaction, and tombstones are
-- looked for elsewhere.
SELECT t.id, t.txn, 'the tree of the past does not have it where and when it was'
  FROM {{hst}} t LEFT JOIN {{past}} b ON b.i = t.i LEFT JOIN naksha_version v ON v.txn = t.txn_next
 WHERE t.txn < t.txn_next AND t.action <> 'DELETE'
   AND NOT coalesce(b.west <= coalesce(t.west, 1000) AND b.east >= coalesce(t.east, 1000)
                    AND b.south <= coalesce(t.south, 1000) AND b.north >= coalesce(t.north, 1000)
                    AND b.since <= t.ord AND b.until >= coalesce(v.ord - 1, t.ord), false)
UNION ALL
SELECT NULL, NULL, 'the tree of the past has what is not there'
  FROM {{past}} b WHERE b.i NOT IN (SELECT t.i FROM {{hst}} t)
 LIMIT ?1

-- name: check_tags
-- `key` is the number that a table of tags knows a row by.
SELECT t.id, t.txn, 'the table of tags does not have ' || x.value
  FROM {{table}} t, json_each(t.jsondata, '$.properties."@ns:com:here:xyz".tags') x
 WHERE {{which}}
   AND NOT EXISTS (SELECT 1 FROM {{tags}} g WHERE g.tag = x.value AND g.{{key}} = t.{{key}})
UNION ALL
SELECT t.id, t.txn, 'the table of tags has ' || g.tag
  FROM {{tags}} g LEFT JOIN {{table}} t ON t.{{key}} = g.{{key}}
 WHERE g.tag NOT IN (SELECT x.value
                       FROM json_each(t.jsondata, '$.properties."@ns:com:here:xyz".tags') x)
 LIMIT ?1

-- name: check_tags_all
true

-- name: check_tags_past
t.txn < t.txn_next AND t.action <> 'DELETE'

-- name: check_rows
-- The number of a state, its ordinal, and the geometry that clients get, which is kept as a text.
SELECT t.id, t.txn, 'it has the number ' || t.i || ', which its state id does not say'
  FROM {{table}} t
 WHERE json_extract(t.jsondata, '$.properties."@ns:com:here:xyz".uuid') NOT LIKE '%:' || t.i
UNION ALL
SELECT t.id, t.txn, 'its ordinal is ' || t.ord || ', that of its transaction ' || v.ord
  FROM {{table}} t JOIN naksha_version v ON v.txn = t.txn WHERE v.ord <> t.ord
UNION ALL
SELECT t.id, t.txn, 'its geometry is not the same as GeoJSON'
  FROM {{table}} t WHERE NOT naksha_same_geometry(t.geometry, t.geo)
 LIMIT ?1

-- name: check_log
SELECT NULL, t.txn, 'the log calls it version ' || coalesce(t.seq_number, 'null') || ' of '
       || coalesce(t.seq_ts, 'null') || ', the versions ' || coalesce(v.seq_number, 'null')
       || ' of ' || coalesce(v.seq_ts, 'null')
  FROM naksha_tx t LEFT JOIN naksha_version v ON v.txn = t.txn
 WHERE t.id = ?2 AND (t.seq_number IS NOT v.seq_number OR t.seq_ts IS NOT v.seq_ts)
 LIMIT ?1

-- name: check_versions
SELECT NULL, v.txn, 'version ' || v.seq_number || ' follows version ' || v.number_before
       || ', or is of an earlier time or transaction'
  FROM (SELECT seq_number, txn, seq_ts, ord, lag(seq_number) OVER o AS number_before,
               lag(txn) OVER o AS txn_before, lag(seq_ts) OVER o AS ts_before,
               lag(ord) OVER o AS ord_before
          FROM naksha_version WINDOW o AS (ORDER BY seq_number)) v
 WHERE v.seq_number <> v.number_before + 1 OR v.txn <= v.txn_before OR v.seq_ts < v.ts_before
    OR v.ord <= v.ord_before
 LIMIT ?1
