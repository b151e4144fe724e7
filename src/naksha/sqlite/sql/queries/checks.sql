-- Consistency checks between redundant tables: features (or versions) that differ between two
-- places. Each query returns id, txn and a message, at most ?1 rows; ?2 is the table number.
-- R*Trees store float32 values, rounded outward: a box there must cover the exact one and may be
-- larger.

-- name: check_tree
-- Spatial queries find exactly the features that the R*Tree has.
SELECT s.id, s.txn, 'the spatial index does not have the state at its place'
  FROM {{table}} s LEFT JOIN {{tree}} b ON b.n = s.n
 WHERE s.n BETWEEN ?2 << 40 AND ((?2 + 1) << 40) - 1 AND s.west IS NOT NULL
   AND NOT coalesce(b.west <= s.west AND b.east >= s.east AND b.south <= s.south
                    AND b.north >= s.north AND b.t = ?2 AND b.t_end = ?2 + 0.5 AND {{time}},
                    false)
UNION ALL
SELECT s.id, s.txn, 'the spatial index has a state that does not exist'
  FROM {{tree}} b LEFT JOIN {{table}} s ON s.n = b.n
 WHERE b.t <= ?2 AND b.t_end >= ?2 AND s.west IS NULL
 LIMIT ?1

-- name: check_time_head
b.since <= s.ord

-- name: check_time_del
true

-- name: check_past
-- The R*Tree of the history also has the time, in ordinals of transactions: up to the last one
-- before the end of the state, as far as that is known. It has neither states that ended in their
-- own transaction, which were never visible, nor tombstones, which have their own index.
SELECT s.id, s.txn, 'the spatial index of the history does not have the state at its place and time'
  FROM naksha_hst s LEFT JOIN naksha_past b ON b.n = s.n
       LEFT JOIN naksha_version v ON v.txn = s.txn_next
 WHERE s.n BETWEEN ?2 << 40 AND ((?2 + 1) << 40) - 1 AND s.txn < s.txn_next AND s.action <> 'DELETE'
   AND NOT coalesce(b.west <= coalesce(s.west, 1000) AND b.east >= coalesce(s.east, 1000)
                    AND b.south <= coalesce(s.south, 1000) AND b.north >= coalesce(s.north, 1000)
                    AND b.t = ?2 AND b.t_end = ?2 + 0.5
                    AND b.since <= s.ord AND b.until >= coalesce(v.ord - 1, s.ord), false)
UNION ALL
SELECT NULL, NULL, 'the spatial index of the history has a state that does not exist'
  FROM naksha_past b
 WHERE b.t <= ?2 AND b.t_end >= ?2 AND b.n NOT IN (SELECT s.n FROM naksha_hst s WHERE s.t = ?2)
 LIMIT ?1

-- name: check_tags
SELECT s.id, s.txn, 'the index of tags does not have the tag ' || x.value
  FROM {{table}} s, json_each(s.jsondata, '$.properties."@ns:com:here:xyz".tags') x
 WHERE s.n BETWEEN ?2 << 40 AND ((?2 + 1) << 40) - 1 AND {{which}}
   AND NOT EXISTS (SELECT 1 FROM {{tags}} g WHERE g.tag = x.value AND g.n = s.n)
UNION ALL
SELECT s.id, s.txn, 'the index of tags has a tag that the state does not have: ' || g.tag
  FROM {{tags}} g LEFT JOIN {{table}} s ON s.n = g.n
 WHERE g.n BETWEEN ?2 << 40 AND ((?2 + 1) << 40) - 1
   AND g.tag NOT IN (SELECT x.value
                       FROM json_each(s.jsondata, '$.properties."@ns:com:here:xyz".tags') x)
 LIMIT ?1

-- name: check_tags_all
true

-- name: check_tags_past
s.txn < s.txn_next AND s.action <> 'DELETE'

-- name: check_rows
-- Checks the number of a state, its ordinal, the geometry text that clients get, and whether its
-- document can be parsed. `damaged` is the JSON path of the damage mark.
SELECT s.id, s.txn, CASE
       WHEN json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid') NOT LIKE '%:' || s.i
       THEN 'the state is stored under the number ' || s.i || ', but its state id ends with another'
       WHEN v.ord <> s.ord
       THEN 'the ordinal of the state is ' || s.ord || ', but that of its transaction is ' || v.ord
       WHEN json_type(s.jsondata, {{damaged}}) IS NOT NULL
       THEN 'the ' || json_extract(s.jsondata, {{damaged}} || '.field')
            || ' of the state is damaged: '
            || json_extract(s.jsondata, {{damaged}} || '.problem')
       WHEN NOT naksha_is_readable(CAST(s.jsondata AS BLOB))
       THEN 'the document of the state cannot be read'
       ELSE 'the geometry of the state differs from its GeoJSON text' END AS message
  FROM {{table}} s LEFT JOIN naksha_version v ON v.txn = s.txn
 WHERE s.n BETWEEN ?2 << 40 AND ((?2 + 1) << 40) - 1
   AND (json_extract(s.jsondata, '$.properties."@ns:com:here:xyz".uuid') NOT LIKE '%:' || s.i
        OR v.ord <> s.ord OR NOT naksha_same_geometry(CAST(s.geometry AS BLOB), s.geo)
        OR json_type(s.jsondata, {{damaged}}) IS NOT NULL
        OR NOT naksha_is_readable(CAST(s.jsondata AS BLOB)))
 LIMIT ?1

-- name: check_log
SELECT NULL, t.txn, 'the log has the transaction as version ' || coalesce(t.seq_number, 'null')
       || ' of ' || coalesce(t.seq_ts, 'null') || ', the list of versions as '
       || coalesce(v.seq_number, 'null')
       || ' of ' || coalesce(v.seq_ts, 'null')
  FROM naksha_tx t LEFT JOIN naksha_version v ON v.txn = t.txn
 WHERE t.id = ?2 AND (t.seq_number IS NOT v.seq_number OR t.seq_ts IS NOT v.seq_ts)
 LIMIT ?1

-- name: check_versions
SELECT NULL, v.txn, 'version ' || v.seq_number || ' follows version ' || v.number_before
       || ' in the list of versions, but is not the next one, or has an earlier time or transaction'
  FROM (SELECT seq_number, txn, seq_ts, ord, lag(seq_number) OVER o AS number_before,
               lag(txn) OVER o AS txn_before, lag(seq_ts) OVER o AS ts_before,
               lag(ord) OVER o AS ord_before
          FROM naksha_version WINDOW o AS (ORDER BY seq_number)) v
 WHERE v.seq_number <> v.number_before + 1 OR v.txn <= v.txn_before OR v.seq_ts < v.ts_before
    OR v.ord <= v.ord_before
 LIMIT ?1
