-- Comparison of data that a database stores twice; see naksha.psql.maintenance.checks. Documents
-- contain nearly all of a state, and lookups in them use indices that the server maintains.

-- name: check_tables
SELECT c.id, c.overlay FROM naksha_collection c WHERE c.id = $1 OR c.base = $1 ORDER BY c.overlay

-- name: check_numbers
-- A state is found by its number, which its id ends with.
SELECT s.jsondata->>'id', naksha_xyz_txn(s.jsondata),
       'the state is stored under the number ' || s.i || ', but its state id ends with another'
  FROM {{table}} s
 WHERE s.i::text IS DISTINCT FROM substring(naksha_xyz(s.jsondata)->>'uuid' FROM '[0-9]+$')
 LIMIT $1

-- name: check_geometries
SELECT s.jsondata->>'id', naksha_xyz_txn(s.jsondata),
       'the geometry of the state cannot be read: ' || naksha_geo_problem(s.geo)
  FROM {{table}} s
 WHERE naksha_geo_problem(s.geo) IS NOT NULL
 LIMIT $1

-- name: check_documents
SELECT s.jsondata->>'id', naksha_xyz_txn(s.jsondata),
       'the document of the state cannot be read: ' || naksha_json_problem(s.jsondata)
  FROM {{table}} s
 WHERE naksha_json_problem(s.jsondata) IS NOT NULL
 LIMIT $1

-- name: check_triggers
-- Direct writes to such a leaf have no history and are not in the log.
SELECT NULL, NULL, format('table %I lacks triggers, so that the history does not record direct '
                          'writes to it; maintenance installs them', l.tbl)
  FROM naksha_leaves_without_triggers() l WHERE l.collection_id = $2
 LIMIT $1

-- name: check_logged
-- States without an entry in the log, as far as the log goes back.
SELECT s.jsondata->>'id', naksha_xyz_txn(s.jsondata),
       'the log has no entry for the write of the state, which bypassed the history'
  FROM {{table}} s
 WHERE naksha_xyz_txn(s.jsondata) >= (SELECT coalesce(min(first.txn), 0) FROM naksha_tx first)
   AND NOT EXISTS (SELECT FROM naksha_tx t WHERE t.txn = naksha_xyz_txn(s.jsondata)
                      AND t.action = 'MODIFY_FEATURES' AND t.id = $2)
 LIMIT $1

-- name: check_log
SELECT NULL, t.txn, format('the log has the transaction as version %s of %s, the list of '
                           'versions as %s of %s',
                           t.seq_number, t.seq_ts, v.seq_number, v.seq_ts)
  FROM naksha_tx t LEFT JOIN naksha_version v ON v.txn = t.txn
 WHERE t.id = $2
   AND (t.seq_number IS DISTINCT FROM v.seq_number OR t.seq_ts IS DISTINCT FROM v.seq_ts)
   -- When the log expires, its versions are removed first.
   AND t.txn >= (SELECT coalesce(min(first.txn), 0) FROM naksha_version first)
 LIMIT $1

-- name: check_versions
SELECT NULL, v.txn, format('version %s follows version %s in the list of versions, but is not '
                           'the next one, or has an earlier time or transaction',
                           v.seq_number, v.number_before)
  FROM (SELECT seq_number, txn, seq_ts, lag(seq_number) OVER o AS number_before,
               lag(txn) OVER o AS txn_before, lag(seq_ts) OVER o AS ts_before
          FROM naksha_version WINDOW o AS (ORDER BY seq_number)) v
 WHERE v.seq_number <> v.number_before + 1 OR v.txn <= v.txn_before OR v.seq_ts < v.ts_before
 LIMIT $1
