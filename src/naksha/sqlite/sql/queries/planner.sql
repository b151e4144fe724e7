-- name: planner_fixed
-- The planner considers the first column of every index selective unless it has statistics. These
-- say that a collection is large, and are the same in every file, so that plans are, too. Tables of
-- one row are included, since the planner would read a whole table to save itself a million
-- look-ups.
VALUES
    ('naksha_storage', NULL, '1'),
    ('naksha_shell', NULL, '1'),
    ('naksha_edited', NULL, '1'),
    ('naksha_head', 'naksha_head_id', '10000000 1000000 1'),
    ('naksha_head', 'naksha_head_i', '10000000 1000000 1'),
    ('naksha_head', 'naksha_head_txn', '10000000 1000000 1000'),
    ('naksha_head', 'naksha_head_mrid', '10000000 1000000 2'),
    ('naksha_head', 'naksha_head_qrid', '10000000 1000000 2'),
    ('naksha_head', 'naksha_head_action', '10000000 1000000 100000 10000'),
    ('naksha_del', 'naksha_del_id', '10000000 1000000 1'),
    ('naksha_del', 'naksha_del_txn', '10000000 1000000 1000'),
    ('naksha_del', 'naksha_del_mrid', '10000000 1000000 2'),
    ('naksha_del', 'naksha_del_qrid', '10000000 1000000 2'),
    ('naksha_del', 'naksha_del_action', '10000000 1000000 100000 10000'),
    ('naksha_hst', 'naksha_hst_id', '10000000 1000000 10 2 1'),
    ('naksha_hst', 'naksha_hst_next', '10000000 1000000 1000'),
    ('naksha_hst', 'naksha_hst_txn', '10000000 1000000 1000'),
    ('naksha_hst', 'naksha_hst_mrid', '10000000 1000000 20 2'),
    ('naksha_hst', 'naksha_hst_qrid', '10000000 1000000 20 2'),
    ('naksha_hst', 'naksha_hst_action', '10000000 1000000 100000 10000 100'),
    ('naksha_ids', 'naksha_ids', '1000000 100000 1'),
    ('naksha_meta', 'sqlite_autoindex_naksha_meta_1', '10000 10 1')

-- name: planner_has
SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?)

-- name: planner_differs
-- Whether ANALYZE has replaced the statistics of the storage's tables.
SELECT EXISTS (SELECT tbl, idx, stat FROM sqlite_stat1 WHERE substr(tbl, 1, 7) = 'naksha_'
               EXCEPT SELECT * FROM ({{fixed}}))
    OR EXISTS (SELECT * FROM ({{fixed}}) EXCEPT SELECT tbl, idx, stat FROM sqlite_stat1)

-- name: planner_create
-- ANALYZE creates the table of statistics; for an empty table, it writes no row.
ANALYZE naksha_edited

-- name: planner_forget
DELETE FROM {{table}} WHERE substr(tbl, 1, 7) = 'naksha_'

-- name: planner_restore
INSERT INTO sqlite_stat1 (tbl, idx, stat) {{fixed}}

-- name: planner_changed
-- Connections read statistics with the schema, so a changed schema makes them read both again.
CREATE VIEW naksha_changed AS SELECT 1

-- name: planner_changed_again
DROP VIEW naksha_changed

-- name: planner_reload
-- Reads the statistics into this connection.
ANALYZE sqlite_schema
