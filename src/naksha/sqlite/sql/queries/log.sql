-- name: transaction
SELECT t.*, t.ts AS ts_ms, t.seq_ts AS seq_ms FROM naksha_tx t WHERE t.txn = ? ORDER BY t.i

-- name: transactions
-- Select the versions first, then join all log entries of each.
SELECT t.*, t.ts AS ts_ms, t.seq_ts AS seq_ms FROM naksha_tx t
 WHERE t.txn IN (SELECT v.txn FROM naksha_version v WHERE {{conditions}}
                  ORDER BY v.seq_number {{direction}} LIMIT {{limit}})
 ORDER BY t.txn {{direction}}, t.i

-- name: upwards
ASC

-- name: downwards
DESC

-- name: log_after
v.seq_number > {{value}}

-- name: log_before
v.seq_number < {{value}}

-- name: log_from
v.seq_ts >= {{value}}

-- name: log_to
v.seq_ts < {{value}}

-- name: log_from_txn
v.txn >= {{value}}

-- name: log_started_from
e.ts >= {{value}}

-- name: log_started_to
e.ts < {{value}}

-- name: log_or_unsigned
({{condition}} OR e.author IS NULL)

-- name: log_entry
-- An entry of the transaction meets the conditions; the first column of the log's index is txn.
EXISTS (SELECT 1 FROM naksha_tx e WHERE e.txn = v.txn AND {{conditions}})

-- name: log_overlaid
-- Starts from the branch's own transactions, so the cost does not depend on the log of main.
v.txn IN (SELECT e.txn FROM naksha_tx e
           WHERE e.overlay <> 0 AND e.overlay IN (SELECT value FROM json_each({{values}})))

-- name: log_among
e.{{column}} IN (SELECT value FROM json_each({{values}}))

-- name: log_touched
e.action IN ('MODIFY_FEATURES', 'MODIFY_COLLECTION')

-- name: log_features
e.action = 'MODIFY_FEATURES'

-- name: log_text
e.action = 'MESSAGE' AND naksha_has_text(e.msg_text, {{value}})

-- name: log_box
e.west <= {{east}} AND e.east >= {{west}} AND e.south <= {{north}} AND e.north >= {{south}}
