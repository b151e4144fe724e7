-- Triggers for those who write with none of our code: every statement is a transaction of its own,
-- signed by the app id that is kept in the file. They do for each row what the library does for
-- many; the library's own writes set `managed`, and they stand aside.

-- name: shell_begin
-- Draws a number, unless this row belongs to the statement that the last one belonged to.
UPDATE naksha_shell
   SET managed = 1,
       txn = CASE WHEN stamp = julianday('now') AND changes = total_changes() THEN txn ELSE 0 END,
       stamp = julianday('now');
UPDATE naksha_storage
   SET last_txn = max(last_txn + 1,
                      CAST(strftime('%Y%m%d', 'now') AS INTEGER) * 100000000000 + 1),
       last_ord = last_ord + 1
 WHERE (SELECT txn FROM naksha_shell) = 0;
UPDATE naksha_shell
   SET txn = (SELECT last_txn FROM naksha_storage), ord = (SELECT last_ord FROM naksha_storage),
       now_ms = CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)
 WHERE txn = 0;

-- name: shell_end
-- Publishes: whoever writes here is alone in the file.
UPDATE naksha_collection SET next_i = next_i + 1 WHERE id = {{id_literal}};
INSERT INTO naksha_version (seq_number, txn, seq_ts, ord)
SELECT (SELECT coalesce(max(seq_number), 0) FROM naksha_version)
           + row_number() OVER (ORDER BY t.txn), t.txn,
       max(s.now_ms, (SELECT coalesce(max(seq_ts), s.now_ms) FROM naksha_version)), t.ord
  FROM (SELECT DISTINCT txn, ord FROM naksha_tx WHERE seq_number IS NULL) AS t, naksha_shell AS s;
UPDATE naksha_tx
   SET seq_number = (SELECT v.seq_number FROM naksha_version v WHERE v.txn = naksha_tx.txn),
       seq_ts = (SELECT v.seq_ts FROM naksha_version v WHERE v.txn = naksha_tx.txn)
 WHERE seq_number IS NULL;
UPDATE naksha_shell SET managed = 0, changes = total_changes() + 1;

-- name: shell_log
INSERT INTO naksha_tx (ts, txn, ord, action, id, app_id, author, {{what}}, west, south, east, north)
SELECT s.now_ms, s.txn, s.ord, 'MODIFY_FEATURES', {{id_literal}}, o.app_id, o.author, 1,
       {{row}}.west, {{row}}.south, {{row}}.east, {{row}}.north
  FROM naksha_shell s, naksha_storage o WHERE true
ON CONFLICT (txn, action, id) DO UPDATE
   SET {{what}} = {{what}} + 1,
       west = min(coalesce(west, excluded.west), coalesce(excluded.west, west)),
       south = min(coalesce(south, excluded.south), coalesce(excluded.south, south)),
       east = max(coalesce(east, excluded.east), coalesce(excluded.east, east)),
       north = max(coalesce(north, excluded.north), coalesce(excluded.north, north));

-- name: shell_retire
-- The old state goes to the history, if there is one.
INSERT INTO {{hst}} ({{columns}}, txn_next)
SELECT OLD.i, OLD.id, OLD.geo, OLD.geometry, OLD.jsondata, OLD.west, OLD.south, OLD.east, OLD.north,
       OLD.txn, OLD.ord, OLD.version, OLD.action, OLD.author, OLD.app_id, OLD.updated_at, OLD.qrid,
       OLD.mrid, s.txn
  FROM naksha_shell s, naksha_collection c WHERE c.id = {{id_literal}} AND c.off_since IS NULL;
INSERT INTO {{past}} (i, west, east, south, north, since, until)
SELECT OLD.i, coalesce(OLD.west, 1000), coalesce(OLD.east, 1000), coalesce(OLD.south, 1000),
       coalesce(OLD.north, 1000), OLD.ord, s.ord - 1
  FROM naksha_shell s, naksha_collection c WHERE c.id = {{id_literal}} AND c.off_since IS NULL;
INSERT INTO {{past_tag}} (tag, i)
SELECT t.tag, OLD.i FROM {{tag}} t, naksha_collection c
 WHERE t.n = OLD.n AND c.id = {{id_literal}} AND c.off_since IS NULL;

-- name: shell_uuid
printf('%s:%s:%d:%d:%d:%d', o.id, {{id_literal}}, s.txn / 1000000000000000,
       s.txn / 10000000000000 % 100, s.txn / 100000000000 % 100, c.next_i)

-- name: shell_refuse_collection
WHEN (SELECT dropped_at FROM naksha_collection WHERE id = {{id_literal}}) <> 0
THEN RAISE(ABORT, 'The collection is dropped')

-- name: shell_refuse_document
WHEN NOT json_valid(NEW.jsondata) THEN RAISE(ABORT, 'jsondata is not JSON')
WHEN json_type(NEW.jsondata) <> 'object' THEN RAISE(ABORT, 'jsondata must be an object')
WHEN json_type(NEW.jsondata, '$.properties') NOT IN ('object', 'null')
THEN RAISE(ABORT, 'properties must be an object')
WHEN json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags') NOT IN ('array', 'null')
THEN RAISE(ABORT, 'tags must be an array')
WHEN EXISTS (SELECT 1 FROM json_each(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags') t
              WHERE t.type <> 'text')
  OR (SELECT count(*) <> count(DISTINCT t.value)
        FROM json_each(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags') t)
THEN RAISE(ABORT, 'tags must be texts, each of them once')
WHEN json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid') NOT IN ('text', 'null')
  OR json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid') = ''
THEN RAISE(ABORT, 'crid must be a text')
WHEN (SELECT count(*) <> count(DISTINCT k.key) FROM json_each(NEW.jsondata) k)
  OR (SELECT count(*) <> count(DISTINCT k.key) FROM json_each(NEW.jsondata, '$.properties') k)
THEN RAISE(ABORT, 'A member is there twice')
WHEN NEW.jsondata GLOB '*\u[dD][89abAB]*'
THEN RAISE(ABORT, 'Characters are written as they are, not as \ud…')
WHEN json_type(NEW.jsondata, '$.geometry') <> 'null' THEN RAISE(ABORT, {{no_geometry}})

-- name: shell_identities
-- The ids of the storage, the present one last, each with the first and last row number of the
-- states that it gave them to.
SELECT e.id, e.last_i, coalesce(max(e.last_i) OVER (
           ORDER BY e.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) + 1, 0) AS first_i
  FROM (SELECT f.value ->> 'id' AS id, f.key AS place,
               coalesce((SELECT l.value FROM json_each(f.value, '$.lastI') l
                          WHERE l.key = {{id_literal}}), 0) AS last_i
          FROM naksha_storage o, json_each(o.former) AS f
        UNION ALL
        SELECT o.id, 9223372036854775807, 9223372036854775807 FROM naksha_storage o) AS e

-- name: shell_refuse_stale
-- Somebody writes what was read as a state of this collection that is not HEAD's any more. What
-- follows storage and collection in a state id are four numbers, the last of which is the state's.
-- Under a former id of the storage only states up to a row number are its own.
WHEN EXISTS (SELECT 1 FROM (
        SELECT CAST(substr(x.rest, length(rtrim(x.rest, '0123456789')) + 1) AS INTEGER) AS i,
               x.first_i, x.last_i
          FROM (SELECT substr(u.uuid, length(u.prefix) + 1) AS rest, u.first_i, u.last_i
                  FROM (SELECT json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".uuid')
                                   AS uuid, k.id || ':' || {{id_literal}} || ':' AS prefix,
                               k.first_i, k.last_i
                          FROM ({{identities}}) AS k) AS u
                 WHERE substr(u.uuid, 1, length(u.prefix)) = u.prefix) AS x
         WHERE length(x.rest) - length(replace(x.rest, ':', '')) = 3
           AND x.rest NOT GLOB '*[^0-9:]*') AS y
     WHERE y.i <> OLD.i AND y.i BETWEEN y.first_i AND y.last_i)
THEN RAISE(ABORT, 'The feature was changed since it was read: its uuid is not that of HEAD')

-- name: shell_document
-- The document as it is kept: with properties, without geometry, with the new namespace.
json_set(json_remove(CASE WHEN json_type(NEW.jsondata, '$.properties') IS 'object'
    THEN NEW.jsondata ELSE json_set(NEW.jsondata, '$.properties', json('{}')) END, '$.geometry'),
    '$.type', 'Feature', '$.properties."@ns:com:here:xyz"', json({{xyz}}))

-- name: shell_tags
DELETE FROM {{tag}} WHERE n = NEW.n;
INSERT INTO {{tag}} (tag, n)
SELECT DISTINCT t.value, NEW.n
  FROM {{head}} h, json_each(h.jsondata, '$.properties."@ns:com:here:xyz".tags') t
 WHERE h.n = NEW.n;

-- name: update_triggers
DROP TRIGGER IF EXISTS {{head_}}before_update;
CREATE TRIGGER {{head_}}before_update BEFORE UPDATE ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    SELECT CASE
    {{refuse_collection}}
    WHEN NEW.geo IS NOT OLD.geo OR NEW.geometry IS NOT OLD.geometry OR NEW.west IS NOT OLD.west
      OR NEW.south IS NOT OLD.south OR NEW.east IS NOT OLD.east OR NEW.north IS NOT OLD.north
    THEN RAISE(ABORT, {{no_geometry}})
    WHEN NEW.n IS NOT OLD.n OR NEW.i IS NOT OLD.i OR NEW.id IS NOT OLD.id
      OR NEW.txn IS NOT OLD.txn OR NEW.ord IS NOT OLD.ord OR NEW.version IS NOT OLD.version
      OR NEW.action IS NOT OLD.action OR NEW.author IS NOT OLD.author
      OR NEW.app_id IS NOT OLD.app_id OR NEW.updated_at IS NOT OLD.updated_at
      OR NEW.qrid IS NOT OLD.qrid OR NEW.mrid IS NOT OLD.mrid
    THEN RAISE(ABORT, 'Only jsondata can be changed; the rest follows from it')
    {{refuse_document}}
    WHEN json_extract(NEW.jsondata, '$.id') IS NOT OLD.id
    THEN RAISE(ABORT, 'The id of a feature cannot be changed; delete it and insert another one')
    {{refuse_stale}}
    END;
END;
DROP TRIGGER IF EXISTS {{head_}}after_update;
CREATE TRIGGER {{head_}}after_update AFTER UPDATE ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0 AND (
    json_remove(NEW.jsondata, '$.properties."@ns:com:here:xyz"')
        IS NOT json_remove(OLD.jsondata, '$.properties."@ns:com:here:xyz"')
    OR coalesce(json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags'),
                json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".tags'))
        IS NOT json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".tags')
    OR (json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid') IS NOT NULL
        AND json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid')
            IS NOT json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".crid')))
BEGIN
    {{begin}}
    {{log}}
    {{retire}}
    UPDATE {{head}} SET i = (SELECT next_i FROM naksha_collection WHERE id = {{id_literal}}),
           txn = (SELECT txn FROM naksha_shell), ord = (SELECT ord FROM naksha_shell),
           version = OLD.version + 1, action = 'UPDATE',
           author = coalesce((SELECT author FROM naksha_storage), OLD.author),
           app_id = (SELECT app_id FROM naksha_storage),
           updated_at = (SELECT now_ms FROM naksha_shell),
           jsondata = (SELECT {{document}}
             FROM (SELECT coalesce(json_extract(NEW.jsondata,
                             '$.properties."@ns:com:here:xyz".tags'),
                          json_extract(OLD.jsondata,
                              '$.properties."@ns:com:here:xyz".tags')) AS tags,
                     CASE WHEN json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid')
                               IS NULL
                          THEN json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".crid')
                          ELSE json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid')
                      END AS crid,
                     json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz"') AS old) AS x,
                  naksha_shell s, naksha_storage o, naksha_collection c
            WHERE c.id = {{id_literal}})
     WHERE n = NEW.n;
    UPDATE {{head}}
       SET mrid = json_extract(jsondata, '$.properties."@ns:com:here:xyz".mrid') WHERE n = NEW.n;
    {{tags}}
    {{end}}
END;
-- A namespace that was changed alone is put back.
DROP TRIGGER IF EXISTS {{head_}}same_update;
CREATE TRIGGER {{head_}}same_update AFTER UPDATE ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0 AND NEW.jsondata IS NOT OLD.jsondata
 AND json_remove(NEW.jsondata, '$.properties."@ns:com:here:xyz"')
        IS json_remove(OLD.jsondata, '$.properties."@ns:com:here:xyz"')
 AND coalesce(json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".tags'),
              json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".tags'))
        IS json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".tags')
 AND (json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid') IS NULL
      OR json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid')
         IS json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz".crid'))
BEGIN
    UPDATE naksha_shell SET managed = 1,
           changes = CASE WHEN stamp = julianday('now') AND changes = total_changes() THEN -2
                          ELSE -1 END;
    UPDATE {{head}} SET jsondata = OLD.jsondata WHERE n = NEW.n;
    UPDATE naksha_shell SET managed = 0,
           changes = CASE WHEN changes = -2 THEN total_changes() + 1 ELSE -1 END;
END;

-- name: update_xyz
json_object('action', 'UPDATE', 'version', OLD.version + 1,
    'author', coalesce(o.author, OLD.author), 'appId', o.app_id, 'uuid', {{uuid}},
    'puuid', json_extract(x.old, '$.uuid'), 'muuid', NULL, 'txn', CAST(s.txn AS TEXT),
    'txn_next', '0', 'createdAt', json_extract(x.old, '$.createdAt'), 'updatedAt', s.now_ms,
    'rtcts', json_extract(x.old, '$.rtcts'), 'rtuts', s.now_ms, 'tags', json(x.tags),
    'crid', x.crid, 'qrid', OLD.qrid, 'mrid', coalesce(x.crid, OLD.qrid))

-- name: insert_triggers
DROP TRIGGER IF EXISTS {{head_}}before_insert;
CREATE TRIGGER {{head_}}before_insert BEFORE INSERT ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    SELECT CASE
    {{refuse_collection}}
    WHEN NEW.geo IS NOT NULL OR NEW.geometry IS NOT NULL OR NEW.west IS NOT NULL
      OR NEW.south IS NOT NULL OR NEW.east IS NOT NULL OR NEW.north IS NOT NULL
    THEN RAISE(ABORT, {{no_geometry}})
    WHEN NEW.i IS NOT NULL OR NEW.id IS NOT NULL OR NEW.txn IS NOT NULL OR NEW.ord IS NOT NULL
      OR NEW.version IS NOT NULL OR NEW.action IS NOT NULL OR NEW.author IS NOT NULL
      OR NEW.app_id IS NOT NULL OR NEW.updated_at IS NOT NULL OR NEW.qrid IS NOT NULL
      OR NEW.mrid IS NOT NULL OR NEW.n IS NOT -1
    THEN RAISE(ABORT, 'Only jsondata can be given; the rest follows from it')
    {{refuse_document}}
    WHEN json_type(NEW.jsondata, '$.id') IS NOT 'text' OR json_extract(NEW.jsondata, '$.id') = ''
    THEN RAISE(ABORT, 'A feature needs an id (a string)')
    WHEN length(CAST(json_extract(NEW.jsondata, '$.id') AS BLOB)) > 512
    THEN RAISE(ABORT, 'An id has at most 512 bytes')
    WHEN (SELECT substr(json_extract(NEW.jsondata, '$.id'), 1, length(c.id_prefix)) = c.id_prefix
            FROM naksha_collection c WHERE c.id = {{id_literal}})
    THEN RAISE(ABORT, 'Ids here are written without the prefix of the collection')
    WHEN EXISTS (SELECT 1 FROM {{head}} h WHERE h.id = json_extract(NEW.jsondata, '$.id'))
    THEN RAISE(ABORT, 'The feature exists already; UPDATE it')
    END;
END;
DROP TRIGGER IF EXISTS {{head_}}after_insert;
CREATE TRIGGER {{head_}}after_insert AFTER INSERT ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    -- Before the insertion -1 stands for a number that is not given; now the row has its own.
    SELECT RAISE(ABORT, 'Only jsondata can be given; the rest follows from it') WHERE NEW.n = -1;
    {{begin}}
    {{log}}
    UPDATE {{head}} SET i = (SELECT next_i FROM naksha_collection WHERE id = {{id_literal}}),
           id = json_extract(NEW.jsondata, '$.id'),
           txn = (SELECT txn FROM naksha_shell), ord = (SELECT ord FROM naksha_shell),
           version = 1 + coalesce((SELECT d.version FROM {{del}} d
                                    WHERE d.id = json_extract(NEW.jsondata, '$.id')), 0),
           action = 'CREATE', app_id = (SELECT app_id FROM naksha_storage),
           author = (SELECT coalesce(o.author, c.author, o.app_id)
                       FROM naksha_storage o, naksha_collection c WHERE c.id = {{id_literal}}),
           updated_at = (SELECT now_ms FROM naksha_shell),
           jsondata = (SELECT {{document}}
             FROM (SELECT json_extract(NEW.jsondata,
                              '$.properties."@ns:com:here:xyz".tags') AS tags,
                     json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz".crid') AS crid,
                     1 + coalesce((SELECT d.version FROM {{del}} d
                            WHERE d.id = json_extract(NEW.jsondata, '$.id')), 0) AS version) AS x,
                  naksha_shell s, naksha_storage o, naksha_collection c
            WHERE c.id = {{id_literal}})
     WHERE n = NEW.n;
    UPDATE {{head}}
       SET mrid = json_extract(jsondata, '$.properties."@ns:com:here:xyz".mrid') WHERE n = NEW.n;
    INSERT INTO {{hst}} ({{columns}}, txn_next)
    SELECT d.i, d.id, d.geo, d.geometry, d.jsondata, d.west, d.south, d.east, d.north, d.txn, d.ord,
           d.version, d.action, d.author, d.app_id, d.updated_at, d.qrid, d.mrid, s.txn
      FROM {{del}} d, naksha_shell s, naksha_collection c
     WHERE d.id = json_extract(NEW.jsondata, '$.id') AND c.id = {{id_literal}}
       AND c.off_since IS NULL;
    DELETE FROM {{del}} WHERE id = json_extract(NEW.jsondata, '$.id');
    {{tags}}
    {{end}}
END;

-- name: insert_xyz
json_object('action', 'CREATE', 'version', x.version,
    'author', coalesce(o.author, c.author, o.app_id), 'appId', o.app_id, 'uuid', {{uuid}},
    'puuid', NULL, 'muuid', NULL, 'txn', CAST(s.txn AS TEXT), 'txn_next', '0',
    'createdAt', s.now_ms, 'updatedAt', s.now_ms, 'rtcts', s.now_ms, 'rtuts', s.now_ms,
    'tags', json(coalesce(x.tags, '[]')), 'crid', x.crid, 'qrid', NULL, 'mrid', x.crid)

-- name: delete_triggers
DROP TRIGGER IF EXISTS {{head_}}before_delete;
CREATE TRIGGER {{head_}}before_delete BEFORE DELETE ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    SELECT CASE {{refuse_collection}} END;
END;
DROP TRIGGER IF EXISTS {{head_}}after_delete;
CREATE TRIGGER {{head_}}after_delete AFTER DELETE ON {{head}}
WHEN (SELECT managed FROM naksha_shell) = 0
BEGIN
    {{begin}}
    {{log}}
    {{retire}}
    INSERT INTO {{del}} ({{columns}})
    SELECT c.next_i, OLD.id, OLD.geo, OLD.geometry,
           json_set(OLD.jsondata, '$.properties."@ns:com:here:xyz"', json({{xyz}})),
           OLD.west, OLD.south, OLD.east, OLD.north, s.txn, s.ord, OLD.version + 1, 'DELETE',
           coalesce(o.author, OLD.author), o.app_id, s.now_ms, OLD.qrid, OLD.mrid
      FROM (SELECT json_extract(OLD.jsondata, '$.properties."@ns:com:here:xyz"') AS old) AS x,
           naksha_shell s, naksha_storage o, naksha_collection c WHERE c.id = {{id_literal}};
    DELETE FROM {{box}} WHERE n = OLD.n;
    DELETE FROM {{tag}} WHERE n = OLD.n;
    {{end}}
END;

-- name: delete_xyz
json_object('action', 'DELETE', 'version', OLD.version + 1,
    'author', coalesce(o.author, OLD.author), 'appId', o.app_id, 'uuid', {{uuid}},
    'puuid', json_extract(x.old, '$.uuid'), 'muuid', NULL, 'txn', CAST(s.txn AS TEXT),
    'txn_next', '0', 'createdAt', json_extract(x.old, '$.createdAt'), 'updatedAt', s.now_ms,
    'rtcts', json_extract(x.old, '$.rtcts'), 'rtuts', s.now_ms,
    'tags', json(json_extract(x.old, '$.tags')), 'crid', json_extract(x.old, '$.crid'),
    'qrid', OLD.qrid, 'mrid', OLD.mrid)
