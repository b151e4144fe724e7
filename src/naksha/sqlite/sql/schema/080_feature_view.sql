-- For writers without the library: the view `feature`, and views that are named like a collection,
-- pass each row to `naksha_edit` and what follows there, which refuse what the library would, and
-- these to `naksha_write`, which does for one row what the library does for many. Every
-- statement is a transaction of its own, signed by the app id that is kept in the file. The
-- library's own writes set `managed`, and so does `naksha_write`: then the guards of the tables
-- stand aside.

-- The position of the last statement: `as_of` is the last transaction when its rows were read.
ALTER TABLE naksha_shell ADD COLUMN as_of INTEGER NOT NULL DEFAULT -1;

-- States with a geometry that the library has not seen: it computes what SQL cannot, before
-- anything is read.
CREATE TABLE naksha_incomplete (t INTEGER, i INTEGER, PRIMARY KEY (t, i)) WITHOUT ROWID;

-- One row at most: the new state while `naksha_write` is at work.
CREATE TABLE naksha_edited (
    t, action, n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
    author, app_id, updated_at, qrid, mrid, has_history
);

-- `as_of` tells rows of one statement from those of the next: SQLite reads all rows of a view
-- before it changes the first.
CREATE VIEW feature AS
SELECT c.id AS collection, h.id, h.geometry,
       json_remove(json_extract(h.jsondata, '$.properties'), '$."@ns:com:here:xyz"') AS properties,
       json_extract(h.jsondata, '$.properties."@ns:com:here:xyz".tags') AS tags,
       h.jsondata, h.version, h.action, h.author, h.app_id, h.txn, h.updated_at, h.qrid, h.mrid,
       (SELECT last_txn FROM naksha_storage) AS as_of
  FROM naksha_collection c JOIN naksha_head h ON h.t = c.t
 WHERE c.dropped_at = 0;

-- The ids that the storage has had, each with the first and last number of the states that it gave
-- them to in a collection.
CREATE VIEW naksha_identity AS
SELECT e.collection, e.id || ':' || e.collection || ':' AS prefix, e.last_i,
       coalesce(max(e.last_i) OVER (PARTITION BY e.collection ORDER BY e.place
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) + 1, 0) AS first_i
  FROM (SELECT c.id AS collection, f.value ->> 'id' AS id, f.key AS place,
               coalesce((SELECT l.value FROM json_each(f.value, '$.lastI') l WHERE l.key = c.id), 0)
                   AS last_i
          FROM naksha_collection c, naksha_storage o, json_each(o.former) f
        UNION ALL
        SELECT c.id, o.id, 9223372036854775807, 9223372036854775807
          FROM naksha_collection c, naksha_storage o) AS e;

-- Views that are only written to: each is a step of an edit, and names what is known by then.
CREATE VIEW naksha_edit AS
SELECT '' AS collection, '' AS action, '' AS id, '' AS jsondata, '' AS geometry, '' AS properties,
       '' AS tags, 0 AS as_of WHERE false;
CREATE VIEW naksha_text AS SELECT '' AS texts WHERE false;
CREATE VIEW naksha_namespace AS SELECT '' AS xyz, '' AS tags WHERE false;
CREATE VIEW naksha_check AS
SELECT '' AS collection, 0 AS t, '' AS action, '' AS id, '' AS jsondata, '' AS geometry, 0 AS as_of,
       '' AS uuid, '' AS tags, '' AS crid_type, '' AS crid WHERE false;
CREATE VIEW naksha_change AS
SELECT '' AS collection, 0 AS t, '' AS action, '' AS id, '' AS jsondata, '' AS geometry, '' AS tags,
       '' AS crid_type, '' AS crid, 0 AS as_of WHERE false;
CREATE VIEW naksha_write AS
SELECT '' AS collection, 0 AS t, '' AS action, '' AS id, '' AS jsondata, '' AS geometry,
       0 AS is_moved, '' AS tags, '' AS crid, 0 AS as_of WHERE false;
CREATE VIEW naksha_retire AS
SELECT '' AS collection, 0 AS t, '' AS action, '' AS id WHERE false;
CREATE VIEW naksha_finish AS SELECT '' AS collection WHERE false;

CREATE TRIGGER feature_insert INSTEAD OF INSERT ON feature
BEGIN
    SELECT RAISE(ABORT,
                 'Only id, geometry, properties, tags and jsondata can be given; the rest follows')
     WHERE coalesce(NEW.version, NEW.action, NEW.author, NEW.app_id, NEW.txn, NEW.updated_at,
                    NEW.qrid, NEW.mrid, NEW.as_of) IS NOT NULL;
    INSERT INTO naksha_edit (collection, action, id, jsondata, geometry, properties, tags)
    VALUES (NEW.collection, 'CREATE', NEW.id, NEW.jsondata, NEW.geometry, NEW.properties, NEW.tags);
END;

CREATE TRIGGER feature_update INSTEAD OF UPDATE ON feature
BEGIN
    SELECT RAISE(ABORT,
                 'Only geometry, properties, tags and jsondata can be changed; the rest follows')
     WHERE NEW.collection IS NOT OLD.collection OR NEW.id IS NOT OLD.id
        OR NEW.version IS NOT OLD.version OR NEW.action IS NOT OLD.action
        OR NEW.author IS NOT OLD.author OR NEW.app_id IS NOT OLD.app_id OR NEW.txn IS NOT OLD.txn
        OR NEW.updated_at IS NOT OLD.updated_at OR NEW.qrid IS NOT OLD.qrid
        OR NEW.mrid IS NOT OLD.mrid OR NEW.as_of IS NOT OLD.as_of;
    INSERT INTO naksha_edit (collection, action, id, jsondata, geometry, properties, tags, as_of)
    VALUES (OLD.collection, 'UPDATE', OLD.id, NEW.jsondata,
            CASE WHEN NEW.geometry IS NOT OLD.geometry THEN coalesce(NEW.geometry, 'null') END,
            CASE WHEN NEW.properties IS NOT OLD.properties THEN coalesce(NEW.properties, '{}') END,
            CASE WHEN NEW.tags IS NOT OLD.tags THEN coalesce(NEW.tags, '[]') END, OLD.as_of);
END;

CREATE TRIGGER feature_delete INSTEAD OF DELETE ON feature
BEGIN
    INSERT INTO naksha_edit (collection, action, id, as_of)
    VALUES (OLD.collection, 'DELETE', OLD.id, OLD.as_of);
END;

-- The columns of an edit become one document; what is not one is refused.
CREATE TRIGGER naksha_edit_insert INSTEAD OF INSERT ON naksha_edit
BEGIN
    SELECT CASE
    WHEN NOT EXISTS (SELECT 1 FROM naksha_collection WHERE id = NEW.collection)
    THEN RAISE(ABORT, 'The collection does not exist; create it first')
    WHEN (SELECT dropped_at FROM naksha_collection WHERE id = NEW.collection) <> 0
    THEN RAISE(ABORT, 'The collection is dropped; restore it before you write to it')
    WHEN NEW.action = 'DELETE' THEN NULL
    WHEN typeof(coalesce(NEW.jsondata, '{}')) <> 'text'
      OR NOT json_valid(coalesce(NEW.jsondata, '{}')) OR instr(NEW.jsondata, char(0)) <> 0
    THEN RAISE(ABORT, 'jsondata is not JSON; pass a JSON text without the character NUL')
    WHEN json_type(coalesce(NEW.jsondata, '{}')) <> 'object'
    THEN RAISE(ABORT, 'jsondata must be a JSON object')
    WHEN json_type(NEW.jsondata, '$.properties') NOT IN ('object', 'null')
      OR typeof(coalesce(NEW.properties, '{}')) <> 'text'
      OR NOT json_valid(coalesce(NEW.properties, '{}'))
      OR json_type(coalesce(NEW.properties, '{}')) <> 'object'
    THEN RAISE(ABORT, 'properties must be a JSON object')
    WHEN typeof(coalesce(NEW.tags, '[]')) <> 'text' OR NOT json_valid(coalesce(NEW.tags, '[]'))
    THEN RAISE(ABORT, 'tags must be an array')
    WHEN typeof(coalesce(NEW.geometry, 'null')) <> 'text'
      OR NOT json_valid(coalesce(NEW.geometry, 'null'))
    THEN RAISE(ABORT, 'geometry must be a GeoJSON geometry as a JSON text')
    END;
    INSERT INTO naksha_text (texts)
    SELECT '[' || coalesce(NEW.jsondata, '{}') || ',' || coalesce(NEW.properties, '{}') || ','
           || coalesce(NEW.tags, '[]') || ',' || coalesce(NEW.geometry, 'null') || ']'
     WHERE NEW.action <> 'DELETE';
    SELECT CASE
    WHEN json_type(NEW.jsondata, '$.type') IS NOT NULL
     AND json_extract(NEW.jsondata, '$.type') IS NOT 'Feature'
    THEN RAISE(ABORT, 'type must be "Feature"')
    WHEN json_type(NEW.jsondata, '$.properties."@ns:com:here:xyz"') NOT IN ('object', 'null')
      OR json_type(NEW.properties, '$."@ns:com:here:xyz"') NOT IN ('object', 'null')
    THEN RAISE(ABORT, 'The namespace @ns:com:here:xyz must be an object')
    WHEN NEW.action = 'CREATE' AND NEW.id IS NOT NULL
     AND json_type(NEW.jsondata, '$.id') IS NOT NULL
     AND json_extract(NEW.jsondata, '$.id') IS NOT NEW.id
    THEN RAISE(ABORT, 'The column id and the id in jsondata differ')
    END;
    INSERT INTO naksha_check
        (collection, t, action, id, jsondata, geometry, as_of, uuid, tags, crid_type, crid)
    SELECT c.id, c.t, NEW.action, coalesce(NEW.id, json_extract(y.document, '$.id')), y.document,
           coalesce(NEW.geometry,
                    CASE json_type(NEW.jsondata, '$.geometry') WHEN 'null' THEN 'null'
                         ELSE json_extract(NEW.jsondata, '$.geometry') END), NEW.as_of,
           json_extract(y.document, '$.properties."@ns:com:here:xyz".uuid'),
           coalesce(NEW.tags, json_extract(y.document, '$.properties."@ns:com:here:xyz".tags')),
           json_type(y.document, '$.properties."@ns:com:here:xyz".crid'),
           json_extract(y.document, '$.properties."@ns:com:here:xyz".crid')
      FROM naksha_collection c,
           (SELECT json_set(x.document, '$.properties', json(CASE
                       WHEN NEW.properties IS NOT NULL
                       THEN json_set(NEW.properties, '$."@ns:com:here:xyz"', json(coalesce(
                                json_extract(x.document, '$.properties."@ns:com:here:xyz"'), '{}')))
                       WHEN json_type(x.document, '$.properties') = 'object'
                       THEN json_extract(x.document, '$.properties') ELSE '{}' END)) AS document
              FROM (SELECT json_set(json_remove(
                               CASE WHEN NEW.id IS NOT NULL
                                     AND json_type(NEW.jsondata, '$.id') IS NULL
                                    THEN json_set(coalesce(NEW.jsondata, '{}'), '$.id', NEW.id)
                                    ELSE coalesce(NEW.jsondata, '{}') END,
                               '$.geometry', '$."naksha:3d"', '$."@ns:naksha:damaged"'),
                           '$.type', 'Feature') AS document) AS x) AS y
     WHERE c.id = NEW.collection;
END;

-- What the library refuses in texts, wherever it is: the texts of an edit, as one array.
CREATE TRIGGER naksha_text_insert INSTEAD OF INSERT ON naksha_text
BEGIN
    SELECT CASE
    -- Some character is not the UTF-8 of its own number. What is not ASCII is halved until single
    -- characters are left; SQLite has no numbers for two of them.
    WHEN EXISTS (WITH RECURSIVE part(t) AS (
            SELECT NEW.texts
            UNION ALL
            SELECT CASE h.side WHEN 1 THEN substr(p.t, 1, length(p.t) / 2)
                               ELSE substr(p.t, length(p.t) / 2 + 1) END
              FROM part p, (SELECT 1 AS side UNION ALL SELECT 2) h
             WHERE length(p.t) > 1 AND p.t GLOB '*[^' || char(1) || '-' || char(127) || ']*')
        SELECT 1 FROM part p WHERE length(p.t) = 1
           AND CAST(p.t AS BLOB) NOT IN (CAST(char(unicode(p.t)) AS BLOB), x'efbfbe', x'efbfbf'))
    THEN RAISE(ABORT, 'jsondata, properties, tags and geometry must be valid UTF-8')
    WHEN length(NEW.texts) - length(replace(replace(NEW.texts, '{', ''), '[', '')) > 101
     AND EXISTS (WITH RECURSIVE node AS MATERIALIZED (
                SELECT k.id, k.parent FROM json_tree(NEW.texts) k
                 WHERE k.type IN ('object', 'array')),
            nested(id, depth) AS (
                SELECT n.id, 1 FROM node n WHERE n.parent IS NULL
                UNION ALL
                SELECT n.id, d.depth + 1 FROM nested d JOIN node n ON n.parent = d.id
                 WHERE d.depth <= 101)
            SELECT 1 FROM nested d WHERE d.depth > 101)
    THEN RAISE(ABORT, 'jsondata is nested more than 100 levels deep')
    WHEN EXISTS (SELECT 1 FROM json_tree(NEW.texts) k GROUP BY k.parent, k.key HAVING count(*) > 1)
    THEN RAISE(ABORT, 'jsondata has an object with the same member twice; remove one of them')
    WHEN EXISTS (SELECT 1 FROM json_tree(NEW.texts) k WHERE k.type IN ('integer', 'real')
                    AND (k.atom > 1.7976931348623157e308 OR k.atom < -1.7976931348623157e308))
    THEN RAISE(ABORT, 'A number is out of range, in a property or a geometry')
    WHEN replace(NEW.texts, '\\', '') GLOB '*\u0000*'
    THEN RAISE(ABORT, 'jsondata must not contain the character U+0000 (NUL)')
    WHEN replace(NEW.texts, '\\', '') GLOB '*\u[dD][89a-fA-F]*'
    THEN RAISE(ABORT, 'jsondata must contain characters as they are, not escapes such as \ud83d')
    WHEN instr(NEW.texts, '\') <> 0 AND EXISTS (
            SELECT 1 FROM json_tree(NEW.texts) k
             WHERE replace(k.fullkey, '\\', '') GLOB '*\[u/]*')
    THEN RAISE(ABORT,
               'The names of members must contain characters as they are, not escapes (\u00e9)')
    END;
END;

CREATE TRIGGER naksha_check_insert INSTEAD OF INSERT ON naksha_check
BEGIN
    INSERT INTO naksha_namespace (xyz, tags)
    SELECT json_extract(NEW.jsondata, '$.properties."@ns:com:here:xyz"'), NEW.tags
     WHERE NEW.action <> 'DELETE';
    SELECT CASE
    WHEN NEW.action = 'DELETE' THEN NULL
    WHEN json_type(NEW.jsondata, '$.id') IS NOT 'text' OR NEW.id = ''
    THEN RAISE(ABORT,
               'A feature needs an id: set the column id, or the member id of jsondata, to a text')
    WHEN json_extract(NEW.jsondata, '$.id') IS NOT NEW.id
    THEN RAISE(ABORT, 'The id of a feature cannot be changed; delete it and insert another one')
    WHEN length(CAST(NEW.id AS BLOB)) > 512 THEN RAISE(ABORT, 'The id is longer than 512 bytes')
    WHEN length(CAST(json_remove(NEW.jsondata, '$.properties."@ns:com:here:xyz"') AS BLOB))
         > 10485760 OR length(NEW.geometry) > 10485760
    THEN RAISE(ABORT, 'The feature is larger than 10485760 bytes')
    WHEN NEW.action = 'CREATE' AND (SELECT substr(NEW.id, 1, length(c.id_prefix)) = c.id_prefix
                                      FROM naksha_collection c WHERE c.id = NEW.collection)
    THEN RAISE(ABORT,
               'The id begins with the idPrefix of the collection; write it without the prefix')
    WHEN NEW.action = 'CREATE'
     AND EXISTS (SELECT 1 FROM naksha_head h WHERE h.t = NEW.t AND h.id = NEW.id)
    THEN RAISE(ABORT, 'A feature with this id already exists; UPDATE it')
    WHEN NEW.action = 'UPDATE' AND EXISTS (
        -- What follows the prefix of a state id are four numbers; the last is that of the state.
        SELECT 1 FROM naksha_identity k, naksha_head h,
               (SELECT CAST(substr(NEW.uuid, length(rtrim(NEW.uuid, '0123456789')) + 1) AS INTEGER)
                           AS i) AS u
         WHERE k.collection = NEW.collection AND h.t = NEW.t AND h.id = NEW.id
           AND substr(NEW.uuid, 1, length(k.prefix)) = k.prefix
           AND replace(substr(NEW.uuid, length(k.prefix) + 1), ':', '') NOT GLOB '*[^0-9]*'
           AND length(NEW.uuid) - length(replace(NEW.uuid, ':', ''))
               = length(k.prefix) - length(replace(k.prefix, ':', '')) + 3
           AND u.i <> h.i AND u.i BETWEEN k.first_i AND k.last_i)
    THEN RAISE(ABORT,
               'The feature was changed since it was read; read it again, with the uuid of HEAD')
    END;
    INSERT INTO naksha_change
        (collection, t, action, id, jsondata, geometry, tags, crid_type, crid, as_of)
    VALUES (NEW.collection, NEW.t, NEW.action, NEW.id, NEW.jsondata, NEW.geometry, NEW.tags,
            NEW.crid_type, NEW.crid, NEW.as_of);
END;

-- The namespace. A tag is refused that the library would normalise: a class of GLOB that begins
-- with ^ has all other characters, and those from 1 to 127 are ASCII.
CREATE TRIGGER naksha_namespace_insert INSTEAD OF INSERT ON naksha_namespace
BEGIN
    SELECT CASE
    WHEN json_type(NEW.tags) NOT IN ('array', 'null') THEN RAISE(ABORT, 'tags must be an array')
    WHEN json_array_length(NEW.tags) > 1000 THEN RAISE(ABORT, 'The feature has more than 1000 tags')
    WHEN EXISTS (SELECT 1 FROM json_each(NEW.tags) g WHERE g.key IS NOT NULL AND (
            g.type <> 'text' OR g.value = '' OR length(g.value) > 256 OR instr(g.value, ',') <> 0
            OR (g.value NOT GLOB '@*' AND g.value GLOB '*[^' || char(1) || '-' || char(127) || ']*')
            OR (g.value GLOB '*[A-Z]*' AND g.value NOT GLOB '[@~#]*' AND g.value NOT GLOB 'ref_*'
                AND g.value NOT GLOB 'sourceID_*')))
    THEN RAISE(ABORT, 'tags must be texts as they are stored: ASCII in lower case without commas')
    WHEN (SELECT count(g.key) <> count(DISTINCT g.value) FROM json_each(NEW.tags) g)
    THEN RAISE(ABORT, 'tags must be texts, each of them once')
    WHEN json_type(NEW.xyz, '$.crid') NOT IN ('text', 'null')
      OR length(CAST(json_extract(NEW.xyz, '$.crid') AS BLOB)) NOT BETWEEN 1 AND 512
    THEN RAISE(ABORT, 'crid must be a text of up to 512 bytes')
    WHEN json_type(NEW.xyz, '$.uuid') NOT IN ('text', 'null')
      OR length(CAST(json_extract(NEW.xyz, '$.uuid') AS BLOB)) NOT BETWEEN 1 AND 512
    THEN RAISE(ABORT, 'uuid must be a text of up to 512 bytes')
    WHEN json_type(NEW.xyz, '$.version') NOT IN ('integer', 'null')
      OR json_extract(NEW.xyz, '$.version') NOT BETWEEN 0 AND 9223372036854775807
    THEN RAISE(ABORT, 'version must be a number from 0 to 9223372036854775807')
    END;
END;

CREATE TRIGGER naksha_change_insert INSTEAD OF INSERT ON naksha_change
BEGIN
    SELECT CASE
    WHEN json_type(NEW.geometry) NOT IN ('object', 'null')
      OR (json_type(NEW.geometry) = 'object' AND EXISTS (
            -- The geometry, and those in a collection; then all that is inside of coordinates.
            SELECT 1 FROM json_tree(NEW.geometry) g
             WHERE g.type = 'object'
               AND g.fullkey NOT GLOB '*.bbox*' AND g.fullkey NOT GLOB '*.crs*'
               AND (coalesce(json_extract(g.value, '$.type'), '') NOT IN ('Point', 'MultiPoint',
                        'LineString', 'MultiLineString', 'Polygon', 'MultiPolygon',
                        'GeometryCollection')
                    OR json_type(g.value, CASE json_extract(g.value, '$.type')
                           WHEN 'GeometryCollection' THEN '$.geometries' ELSE '$.coordinates' END)
                       IS NOT 'array')
            UNION ALL
            SELECT 1 FROM json_tree(NEW.geometry) g
             WHERE g.path GLOB '*.coordinates*' AND (g.type NOT IN ('array', 'integer', 'real')
                    OR (g.type <> 'array' AND (g.key > 2 OR abs(g.value) > 1e308
                        OR (g.key = 0 AND abs(g.value) > 180)
                        OR (g.key = 1 AND abs(g.value) > 90))))))
    THEN RAISE(ABORT,
               'geometry is not a GeoJSON geometry: a known type, and coordinates within ±180, ±90')
    WHEN json_extract(NEW.geometry, '$.type') <> 'Point'
     AND (SELECT points_only FROM naksha_collection WHERE id = NEW.collection)
    THEN RAISE(ABORT, 'The collection accepts points only, but the geometry is not a Point')
    END;
    -- An update that says what HEAD says already writes no state.
    -- A stored geometry that is not JSON cannot be written again; the new state has none.
    INSERT INTO naksha_write
        (collection, t, action, id, jsondata, geometry, is_moved, tags, crid, as_of)
    SELECT NEW.collection, NEW.t, NEW.action, NEW.id, y.document, y.geometry,
           y.geometry IS NOT y.old_geometry, y.tags, y.crid, NEW.as_of
      FROM (SELECT CASE NEW.action WHEN 'DELETE' THEN h.jsondata ELSE NEW.jsondata END AS document,
                   CASE WHEN NEW.geometry IS NULL
                        THEN CASE WHEN json_valid(h.geometry) THEN json(h.geometry) END
                        WHEN json_type(NEW.geometry) <> 'null' THEN json(NEW.geometry)
                    END AS geometry,
                   CASE WHEN NEW.tags IS NULL
                        THEN json_extract(h.jsondata, '$.properties."@ns:com:here:xyz".tags')
                        ELSE json(NEW.tags) END AS tags,
                   CASE WHEN NEW.crid_type IS NULL
                        THEN json_extract(h.jsondata, '$.properties."@ns:com:here:xyz".crid')
                        ELSE NEW.crid END AS crid,
                   CASE WHEN json_valid(h.geometry) THEN json(h.geometry) ELSE h.geometry
                    END AS old_geometry, h.jsondata AS old
              FROM (SELECT 1) LEFT JOIN naksha_head h ON h.t = NEW.t AND h.id = NEW.id) AS y
     WHERE NEW.action <> 'UPDATE' OR y.geometry IS NOT y.old_geometry
        OR json_remove(y.document, '$.properties."@ns:com:here:xyz"')
           IS NOT json_remove(y.old, '$.properties."@ns:com:here:xyz"')
        OR y.tags IS NOT json_extract(y.old, '$.properties."@ns:com:here:xyz".tags')
        OR y.crid IS NOT json_extract(y.old, '$.properties."@ns:com:here:xyz".crid');
END;

CREATE TRIGGER naksha_write_insert INSTEAD OF INSERT ON naksha_write
BEGIN
    -- Draw a number, unless this row belongs to the statement that the last one belonged to. Rows
    -- of an INSERT are not read from the view: they have the time of their statement in common. The
    -- random bytes take more than a millisecond, so that the next statement has another time.
    UPDATE naksha_shell
       SET managed = 1,
           txn = CASE WHEN NEW.as_of IS NULL THEN txn * (stamp = julianday('now')
                                                         AND changes = total_changes())
                      ELSE txn * (as_of = NEW.as_of) END,
           as_of = coalesce(NEW.as_of, -1),
           stamp = CASE WHEN NEW.as_of IS NULL THEN julianday('now') ELSE 0 END;
    SELECT length(randomblob(4000000)) FROM naksha_shell WHERE txn = 0 AND NEW.as_of IS NULL;
    UPDATE naksha_storage
       SET last_txn = max(last_txn + 1,
                          CAST(strftime('%Y%m%d', 'now') AS INTEGER) * 100000000000 + 1),
           last_ord = last_ord + 1
     WHERE (SELECT txn FROM naksha_shell) = 0;
    UPDATE naksha_shell
       SET txn = (SELECT last_txn FROM naksha_storage), ord = (SELECT last_ord FROM naksha_storage),
           now_ms = CAST((julianday('now') - 2440587.5) * 86400000 + 0.5 AS INTEGER)
     WHERE txn = 0;

    -- The new state.
    INSERT INTO naksha_edited
        (t, action, n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
         author, app_id, updated_at, qrid, mrid, has_history)
    SELECT x.t, NEW.action, x.n, x.i, NEW.id, CASE WHEN NOT NEW.is_moved THEN x.geo END,
           CASE WHEN NEW.is_moved THEN NEW.geometry ELSE x.geometry END,
           json_set(NEW.jsondata, '$.properties."@ns:com:here:xyz"', json_object(
               'action', NEW.action, 'version', x.version, 'author', x.author, 'appId', x.app_id,
               'uuid', printf('%s:%s:%d:%d:%d:%d', x.storage, NEW.collection,
                              x.txn / 1000000000000000, x.txn / 10000000000000 % 100,
                              x.txn / 100000000000 % 100, x.i),
               'puuid', x.xyz ->> '$.uuid', 'muuid', NULL, 'txn', CAST(x.txn AS TEXT),
               'txn_next', '0', 'createdAt', coalesce(x.xyz ->> '$.createdAt', x.now_ms),
               'updatedAt', x.now_ms, 'rtcts', coalesce(x.xyz ->> '$.rtcts', x.now_ms),
               'rtuts', x.now_ms, 'tags', json(coalesce(NEW.tags, '[]')), 'crid', NEW.crid,
               'qrid', x.qrid, 'mrid', coalesce(NEW.crid, x.qrid))),
           x.west, x.south, x.east, x.north, x.txn, x.ord, x.version, x.author, x.app_id, x.now_ms,
           x.qrid, coalesce(NEW.crid, x.qrid), x.has_history
      FROM (SELECT NEW.t AS t, c.next_i AS i, c.off_since IS NULL AS has_history, o.id AS storage,
                   o.app_id, s.txn, s.ord, s.now_ms, h.geo, h.geometry,
                   coalesce(h.n, (SELECT coalesce(max(m.n), NEW.t << 40) + 1 FROM naksha_head m
                        WHERE m.n BETWEEN NEW.t << 40 AND ((NEW.t + 1) << 40) - 1)) AS n,
                   h.jsondata -> '$.properties."@ns:com:here:xyz"' AS xyz,
                   coalesce(h.version, d.version, 0) + 1 AS version,
                   coalesce(o.author, CASE WHEN NEW.action <> 'CREATE' THEN h.author
                                           ELSE coalesce(c.author, o.app_id) END) AS author,
                   CASE WHEN NOT NEW.is_moved THEN h.qrid END AS qrid,
                   CASE WHEN NEW.is_moved THEN b.west ELSE h.west END AS west,
                   CASE WHEN NEW.is_moved THEN b.south ELSE h.south END AS south,
                   CASE WHEN NEW.is_moved THEN b.east ELSE h.east END AS east,
                   CASE WHEN NEW.is_moved THEN b.north ELSE h.north END AS north
              FROM naksha_collection c, naksha_storage o, naksha_shell s,
                   (SELECT min(CASE g.key WHEN 0 THEN g.value END) AS west,
                           min(CASE g.key WHEN 1 THEN g.value END) AS south,
                           max(CASE g.key WHEN 0 THEN g.value END) AS east,
                           max(CASE g.key WHEN 1 THEN g.value END) AS north
                      FROM json_tree(NEW.geometry) g
                     WHERE g.path GLOB '*.coordinates*' AND g.type <> 'array') AS b
                   LEFT JOIN naksha_head h ON h.t = NEW.t AND h.id = NEW.id
                   LEFT JOIN naksha_del d ON d.t = NEW.t AND d.id = NEW.id
             WHERE c.id = NEW.collection) AS x;

    INSERT INTO naksha_retire (collection, t, action, id)
    VALUES (NEW.collection, NEW.t, NEW.action, NEW.id);
END;

CREATE TRIGGER naksha_retire_insert INSTEAD OF INSERT ON naksha_retire
BEGIN
    INSERT INTO naksha_tx (ts, txn, ord, action, id, app_id, author, created, updated, deleted,
                           west, south, east, north)
    SELECT s.now_ms, s.txn, s.ord, 'MODIFY_FEATURES', NEW.collection, o.app_id, o.author,
           NEW.action = 'CREATE', NEW.action = 'UPDATE', NEW.action = 'DELETE',
           min(coalesce(e.west, h.west), coalesce(h.west, e.west)),
           min(coalesce(e.south, h.south), coalesce(h.south, e.south)),
           max(coalesce(e.east, h.east), coalesce(h.east, e.east)),
           max(coalesce(e.north, h.north), coalesce(h.north, e.north))
      FROM naksha_shell s, naksha_storage o, naksha_edited e
           LEFT JOIN naksha_head h ON h.n = e.n WHERE true
    ON CONFLICT (txn, action, id) DO UPDATE
       SET created = created + excluded.created, updated = updated + excluded.updated,
           deleted = deleted + excluded.deleted,
           west = min(coalesce(west, excluded.west), coalesce(excluded.west, west)),
           south = min(coalesce(south, excluded.south), coalesce(excluded.south, south)),
           east = max(coalesce(east, excluded.east), coalesce(excluded.east, east)),
           north = max(coalesce(north, excluded.north), coalesce(excluded.north, north));

    -- The old state goes to the history, if there is one; so does the tombstone of a new feature.
    INSERT INTO naksha_hst (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord,
        version, action, author, app_id, updated_at, qrid, mrid, txn_next)
    SELECT (h.t << 40) + h.i, h.id, h.geo, h.geometry, h.jsondata, h.west, h.south, h.east, h.north,
           h.txn, h.ord, h.version, h.action, h.author, h.app_id, h.updated_at, h.qrid, h.mrid,
           e.txn
      FROM naksha_edited e JOIN naksha_head h ON h.n = e.n WHERE e.has_history
    UNION ALL
    SELECT d.n, d.id, d.geo, d.geometry, d.jsondata, d.west, d.south, d.east, d.north, d.txn, d.ord,
           d.version, d.action, d.author, d.app_id, d.updated_at, d.qrid, d.mrid, e.txn
      FROM naksha_edited e JOIN naksha_del d ON d.t = e.t AND d.id = e.id WHERE e.has_history;
    INSERT INTO naksha_past (n, west, east, south, north, t, t_end, since, until)
    SELECT (h.t << 40) + h.i, coalesce(h.west, 1000), coalesce(h.east, 1000),
           coalesce(h.south, 1000), coalesce(h.north, 1000), h.t, h.t + 0.5, h.ord, e.ord - 1
      FROM naksha_edited e JOIN naksha_head h ON h.n = e.n WHERE e.has_history;
    INSERT INTO naksha_past_tag (tag, n)
    SELECT g.tag, (h.t << 40) + h.i
      FROM naksha_edited e JOIN naksha_head h ON h.n = e.n JOIN naksha_tag g ON g.n = h.n
     WHERE e.has_history;
    DELETE FROM naksha_del WHERE t = NEW.t AND id = NEW.id;
    DELETE FROM naksha_head WHERE t = NEW.t AND id = NEW.id;
    DELETE FROM naksha_box WHERE n = (SELECT n FROM naksha_edited);
    DELETE FROM naksha_tag WHERE n = (SELECT n FROM naksha_edited);
    INSERT INTO naksha_finish (collection) VALUES (NEW.collection);
END;

CREATE TRIGGER naksha_finish_insert INSTEAD OF INSERT ON naksha_finish
BEGIN
    INSERT INTO naksha_head (n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord,
        version, action, author, app_id, updated_at, qrid, mrid)
    SELECT n, i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version, action,
           author, app_id, updated_at, qrid, mrid
      FROM naksha_edited WHERE action <> 'DELETE';
    INSERT INTO naksha_del (n, id, geo, geometry, jsondata, west, south, east, north, txn, ord,
        version, action, author, app_id, updated_at, qrid, mrid)
    SELECT (t << 40) + i, id, geo, geometry, jsondata, west, south, east, north, txn, ord, version,
           action, author, app_id, updated_at, qrid, mrid
      FROM naksha_edited WHERE action = 'DELETE';
    INSERT INTO naksha_box (n, west, east, south, north, t, t_end)
    SELECT n, west, east, south, north, t, t + 0.5 FROM naksha_edited
     WHERE action <> 'DELETE' AND west IS NOT NULL;
    INSERT INTO naksha_tag (tag, n)
    SELECT DISTINCT g.value, e.n
      FROM naksha_edited e, json_each(e.jsondata, '$.properties."@ns:com:here:xyz".tags') g
     WHERE e.action <> 'DELETE';
    INSERT INTO naksha_incomplete (t, i)
    SELECT t, i FROM naksha_edited WHERE geometry IS NOT NULL AND geo IS NULL;
    DELETE FROM naksha_edited;

    -- Publish: a writer is alone in the file.
    UPDATE naksha_collection SET next_i = next_i + 1 WHERE id = NEW.collection;
    INSERT INTO naksha_version (seq_number, txn, seq_ts, ord)
    SELECT (SELECT coalesce(max(seq_number), 0) FROM naksha_version)
               + row_number() OVER (ORDER BY t.txn), t.txn,
           max(s.now_ms, (SELECT coalesce(max(seq_ts), s.now_ms) FROM naksha_version)), t.ord
      FROM (SELECT DISTINCT txn, ord FROM naksha_tx WHERE seq_number IS NULL) AS t,
           naksha_shell AS s;
    UPDATE naksha_tx
       SET seq_number = (SELECT v.seq_number FROM naksha_version v WHERE v.txn = naksha_tx.txn),
           seq_ts = (SELECT v.seq_ts FROM naksha_version v WHERE v.txn = naksha_tx.txn)
     WHERE seq_number IS NULL;
    UPDATE naksha_shell SET managed = 0, changes = total_changes() + 1;
END;
