-- The library's writes: set-based, one statement per leaf, doing the triggers' work themselves.
-- Input comes sorted by (leaf, id); `counts` says how many rows each of the 16 leaves gets.
-- Order of work: gate, lock rows in id order, draw the number, write, check the order.

DO $$
BEGIN
    IF to_regtype('naksha_outcome') IS NULL THEN
        CREATE TYPE naksha_outcome AS (
            id text, action text, uuid text, version int8, feature bytea);
    END IF;
END $$;

-- Locks what is there of the given ids in HEAD and among the tombstones.
CREATE OR REPLACE FUNCTION naksha_lock_rows(c naksha_collection, ids text[], counts int[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    base int := 0;
    part text;
BEGIN
    FOR leaf IN 1..16 LOOP
        CONTINUE WHEN counts[leaf] = 0;
        FOREACH part IN ARRAY ARRAY[c.id || '_p' || to_hex(leaf - 1), c.id || '_del'] LOOP
            EXECUTE format('SELECT count(*) FROM (SELECT FROM %I WHERE jsondata->>''id'' = ANY($1) '
                           'ORDER BY jsondata->>''id'' USING ~<~ FOR UPDATE) AS locked', part)
              USING ids[base + 1 : base + counts[leaf]];
        END LOOP;
        base := base + counts[leaf];
    END LOOP;
END $$;

-- Takes the tombstones of re-created features out of the deletion table; with history they go
-- there as [deleted, re-created). Gives their number and the latest transaction among them.
CREATE OR REPLACE FUNCTION naksha_untomb(
    c naksha_collection, txn int8, ids text[], OUT removed int8, OUT latest int8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
DECLARE
    keep text := '';
BEGIN
    IF c.off_since IS NULL THEN
        keep := format(', kept AS (INSERT INTO %I SELECT i, geo, naksha_closed(jsondata, $2) '
            'FROM gone WHERE naksha_xyz_txn(jsondata) < $2)',
            naksha_ensure_day(c.id || '_hst', txn));
    END IF;
    EXECUTE format('WITH gone AS (DELETE FROM %I WHERE jsondata->>''id'' = ANY($1) '
                   'RETURNING i, geo, jsondata)%s SELECT count(*), max(naksha_xyz_txn(jsondata)) '
                   'FROM gone', c.id || '_del', keep) INTO removed, latest USING ids, txn;
END $$;

-- Statement text that turns the rows of the CTE `gone` (geo, jsondata) into tombstones, with
-- their backup [txn, txn) in the history.
-- $1 txn, $2 GUID prefix, $3 author, $4 app id, $5 now, $6 wall clock
CREATE OR REPLACE FUNCTION naksha_tombstone_sql(c naksha_collection, txn int8) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    backup text := '';
BEGIN
    IF c.off_since IS NULL THEN
        backup := format(', backup AS (INSERT INTO %I SELECT i, geo, '
            'naksha_closed(jsondata, $1) FROM tombs)', naksha_ensure_day(c.id || '_hst', txn));
    END IF;
    RETURN format($sql$, numbered AS (
        SELECT nextval(%L) AS i, geo, jsondata, naksha_xyz(jsondata) AS xyz FROM gone
    ), tombs AS (
        SELECT i, geo, naksha_with_xyz(jsondata, naksha_make_xyz('DELETE',
            (xyz->>'version')::int8 + 1, coalesce($3, xyz->>'author'), $4, $2 || i,
            xyz->>'uuid', NULL, $1, (xyz->>'createdAt')::int8, $5, (xyz->>'rtcts')::int8, $6,
            xyz->'tags', xyz->>'crid', xyz->>'qrid')) AS jsondata
          FROM numbered
    )%s, entombed AS (
        INSERT INTO %I SELECT i, geo, jsondata FROM tombs
        ON CONFLICT ((jsondata->>'id') text_pattern_ops) DO UPDATE
           SET i = excluded.i, geo = excluded.geo, jsondata = excluded.jsondata
    ) SELECT * FROM tombs$sql$, format('%I', c.id || '_i_seq'), backup, c.id || '_del');
END $$;
