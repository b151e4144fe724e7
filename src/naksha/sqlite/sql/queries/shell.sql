-- Views with the names of collections, and completion of rows that plain SQL wrote.

-- name: view_exists
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?)

-- name: view_is_ours
SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?1
                  AND name = ?2)

-- name: view_drop
DROP VIEW {{view}}

-- name: view_create
CREATE VIEW {{view}} AS
SELECT h.n, h.i, h.id, h.txn, h.ord, h.version, h.action, h.author, h.app_id, h.updated_at, h.qrid,
       h.mrid, h.west, h.south, h.east, h.north, h.geo, h.geometry, h.jsondata,
       (SELECT last_txn FROM naksha_storage) AS as_of
  FROM naksha_head h WHERE h.t = {{t}};

CREATE TRIGGER {{insert}} INSTEAD OF INSERT ON {{view}}
BEGIN
    SELECT RAISE(ABORT, 'INSERT can set only id, geometry and jsondata; omit other columns')
     WHERE coalesce(NEW.n, NEW.i, NEW.txn, NEW.ord, NEW.version, NEW.action, NEW.author, NEW.app_id,
                    NEW.updated_at, NEW.qrid, NEW.mrid, NEW.west, NEW.south, NEW.east, NEW.north,
                    NEW.geo, NEW.as_of) IS NOT NULL;
    INSERT INTO naksha_edit (collection, action, id, jsondata, geometry)
    VALUES ({{collection}}, 'CREATE', NEW.id, NEW.jsondata, NEW.geometry);
END;

CREATE TRIGGER {{update}} INSTEAD OF UPDATE ON {{view}}
BEGIN
    SELECT RAISE(ABORT, 'UPDATE can change only geometry and jsondata; omit other columns')
     WHERE NEW.n IS NOT OLD.n OR NEW.i IS NOT OLD.i OR NEW.id IS NOT OLD.id
        OR NEW.txn IS NOT OLD.txn OR NEW.ord IS NOT OLD.ord OR NEW.version IS NOT OLD.version
        OR NEW.action IS NOT OLD.action OR NEW.author IS NOT OLD.author
        OR NEW.app_id IS NOT OLD.app_id OR NEW.updated_at IS NOT OLD.updated_at
        OR NEW.qrid IS NOT OLD.qrid OR NEW.mrid IS NOT OLD.mrid OR NEW.west IS NOT OLD.west
        OR NEW.south IS NOT OLD.south OR NEW.east IS NOT OLD.east OR NEW.north IS NOT OLD.north
        OR NEW.geo IS NOT OLD.geo OR NEW.as_of IS NOT OLD.as_of;
    INSERT INTO naksha_edit (collection, action, id, jsondata, geometry, as_of)
    VALUES ({{collection}}, 'UPDATE', OLD.id, NEW.jsondata,
            CASE WHEN NEW.geometry IS NOT OLD.geometry THEN coalesce(NEW.geometry, 'null') END,
            OLD.as_of);
END;

CREATE TRIGGER {{delete}} INSTEAD OF DELETE ON {{view}}
BEGIN
    INSERT INTO naksha_edit (collection, action, id, as_of)
    VALUES ({{collection}}, 'DELETE', OLD.id, OLD.as_of);
END;

-- name: is_incomplete
SELECT EXISTS (SELECT 1 FROM naksha_incomplete)

-- name: incomplete_rows
-- Returns the table that each state is in now; an expired one is in none. Documents are returned as
-- bytes, so that those that are not UTF-8 get a damage mark.
SELECT 'naksha_head', s.n, s.id, s.geometry, CAST(s.jsondata AS BLOB)
  FROM naksha_incomplete x JOIN naksha_head s ON s.t = x.t AND s.i = x.i
UNION ALL
SELECT 'naksha_del', s.n, s.id, s.geometry, CAST(s.jsondata AS BLOB)
  FROM naksha_incomplete x JOIN naksha_del s ON s.n = (x.t << 40) + x.i
UNION ALL
SELECT 'naksha_hst', s.n, s.id, s.geometry, CAST(s.jsondata AS BLOB)
  FROM naksha_incomplete x JOIN naksha_hst s ON s.n = (x.t << 40) + x.i

-- name: incomplete_forget
DELETE FROM naksha_incomplete

-- name: has_edited_boxes
SELECT EXISTS (SELECT 1 FROM naksha_edited_box)

-- name: edited_boxes
SELECT b.txn, c.id, b.west, b.south, b.east, b.north
  FROM naksha_edited_box b JOIN naksha_collection c ON c.t = b.t ORDER BY b.rowid

-- name: edited_boxes_forget
DELETE FROM naksha_edited_box

-- name: edited_cells
UPDATE naksha_tx SET cells = ? WHERE txn = ? AND action = 'MODIFY_FEATURES' AND id = ?

-- name: complete_row
UPDATE {{table}} SET geo = ?, geometry = ?, west = ?, south = ?, east = ?, north = ?, qrid = ?,
       mrid = ?, jsondata = ? WHERE n = ?

-- name: complete_box
UPDATE {{tree}} SET west = ?, south = ?, east = ?, north = ? WHERE n = ?

-- name: forget_box
DELETE FROM {{tree}} WHERE n = ?
