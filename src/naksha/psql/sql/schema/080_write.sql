-- The library's writes: set-based, one statement per mode and leaf, doing the triggers' work
-- themselves. The input is sorted by (mode, leaf, id); `counts` is the number of rows for each of
-- the 16 leaves of each mode. Order of work: gate, lock rows in id order, draw the number, write,
-- check the order. The statements are built by 081 and 082. (The functions that build them are
-- stable, not immutable, because format is: otherwise the planner would not inline them into
-- naksha_write.)

DO $$
BEGIN
    IF to_regtype('naksha_outcome') IS NULL THEN
        CREATE TYPE naksha_outcome AS (
            id text, action text, uuid text, version int8, feature bytea);
    END IF;
    -- Result of one statement on its leaf. `created` are ids, `tombs` the sorted numbers `i` of
    -- their tombstones, null for none; `corners` are those of former and new geometries (015);
    -- `bad` is the reason to roll back.
    IF to_regtype('naksha_written') IS NULL THEN
        CREATE TYPE naksha_written AS (
            outcomes naksha_outcome[], created text[], updated int8, deleted int8, tombs int8[],
            latest int8, area geometry, bad jsonb, corners int8[]);
    END IF;
END $$;

-- With a single leaf, it takes the rows of all sixteen, in each mode.
CREATE OR REPLACE FUNCTION naksha_one_leaf(counts int[]) RETURNS int[]
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
    first int := 1;
BEGIN
    FOR part IN 1..cardinality(counts) LOOP
        IF part % 16 = 1 THEN
            first := part;
        ELSE
            counts[first] := counts[first] + counts[part];
            counts[part] := 0;
        END IF;
    END LOOP;
    RETURN counts;
END $$;

-- Locks the existing HEAD states and tombstones of the given ids, and returns their number; on a
-- branch they are copied from the layers below first.
CREATE OR REPLACE FUNCTION naksha_lock_known(c naksha_collection, ids text[], counts int[])
RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan SET array_nulls = on AS $$
DECLARE
    base      int := 0;
    batch     text[];
    statement text;
    found     int8;
    known     int8 := 0;
BEGIN
    IF c.overlay <> 0 THEN
        PERFORM naksha_fill(c, ids);
    END IF;
    IF c.partitions = 1 THEN
        counts := naksha_one_leaf(counts);
    END IF;
    FOR leaf IN 1..16 LOOP
        CONTINUE WHEN counts[leaf] = 0;
        statement := format(
            'SELECT (SELECT count(*) FROM (SELECT FROM %I WHERE jsondata->>''id'' = ANY($1) '
            'ORDER BY jsondata->>''id'' USING ~<~ FOR UPDATE) AS locked) + '
            '(SELECT count(*) FROM (SELECT FROM %I WHERE jsondata->>''id'' = ANY($1) '
            'ORDER BY jsondata->>''id'' USING ~<~ FOR UPDATE) AS locked)',
            c.id || '_p' || to_hex(leaf - 1), c.id || '_del');
        batch := ids[base + 1 : base + counts[leaf]];
        EXECUTE CASE WHEN counts[leaf] > 50 THEN statement
                     ELSE naksha_planned('text[]', statement) || format('(%L)', batch) END
           INTO found USING batch;
        known := known + found;
        base := base + counts[leaf];
    END LOOP;
    RETURN known;
END $$;

CREATE OR REPLACE FUNCTION naksha_lock_rows(c naksha_collection, ids text[], counts int[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_lock_known(c, ids, counts);
END $$;

-- The history partition of this transaction; NULL if the collection keeps no history.
CREATE OR REPLACE FUNCTION naksha_history_day(c naksha_collection, txn int8) RETURNS text
VOLATILE
RETURN CASE WHEN c.off_since IS NULL THEN naksha_ensure_day(c.id || '_hst', txn) END;

-- A CTE that copies states to the history, or nothing without history.
CREATE OR REPLACE FUNCTION naksha_kept_sql(day text, states text) RETURNS text
IMMUTABLE
RETURN coalesce(', kept AS (INSERT INTO ' || quote_ident(day) || ' ' || states || ')', '');

-- Removes the tombstones of re-created features from the deletion table; with history they move
-- there as [deleted, re-created). Returns their sorted numbers `i`, null for none, and the latest
-- transaction among them.
CREATE OR REPLACE FUNCTION naksha_untomb(
    c naksha_collection, txn int8, ids text[], OUT removed int8[], OUT latest int8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET array_nulls = on AS $$
DECLARE
    statement text;
BEGIN
    PERFORM naksha_mark_own();
    IF ids IS NULL THEN
        RETURN;
    END IF;
    statement := format(
        'WITH gone AS (DELETE FROM %I WHERE jsondata->>''id'' = ANY($1) RETURNING i, geo, jsondata)'
        '%s SELECT array_agg(i ORDER BY i), max(naksha_xyz_txn(jsondata)) FROM gone',
        c.id || '_del',
        naksha_kept_sql(naksha_history_day(c, txn), 'SELECT i, geo, naksha_closed(jsondata, $2) '
                        'FROM gone WHERE naksha_xyz_txn(jsondata) < $2'));
    EXECUTE CASE WHEN cardinality(ids) > 50 THEN statement
                 ELSE naksha_planned('text[], int8', statement) || format('(%L, %L)', ids, txn) END
       INTO removed, latest USING ids, txn;
END $$;

-- The version of a feature's tombstone, null if it has none.
CREATE OR REPLACE FUNCTION naksha_tomb_version(c naksha_collection, feature_id text) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    version int8;
BEGIN
    EXECUTE naksha_planned('text', format('SELECT (naksha_xyz(jsondata)->>''version'')::int8 '
                            'FROM %I WHERE jsondata->>''id'' = $1', c.id || '_del'))
            || format('(%L)', feature_id) INTO version;
    RETURN version;
END $$;

-- Expression for the namespace of state `i` that has the content of an older one, whose namespace
-- is `xyz`: it only moves between HEAD and the deletion table. (A function would cost planning.)
-- $1 txn $2 GUID prefix $3 author $4 app id $5 now $6 wall clock
CREATE OR REPLACE FUNCTION naksha_moved_sql(action text) RETURNS text
STABLE
RETURN format($sql$naksha_make_xyz(%L, (xyz->>'version')::int8 + 1,
    coalesce($3, xyz->>'author'), $4, $2 || i, xyz->>'uuid', NULL, $1, (xyz->>'createdAt')::int8,
    $5, (xyz->>'rtcts')::int8, $6, xyz->'tags', xyz->>'crid', xyz->>'qrid')$sql$, action);

-- CTEs that turn the states in the CTE `gone` (id, i, geo, jsondata, xyz) into tombstones. The
-- history gets those states, and the tombstones' backup [txn, txn). Parameters as above. `marks` is
-- an expression for members that are added to the namespace.
CREATE OR REPLACE FUNCTION naksha_tombs_sql(c naksha_collection, day text, marks text)
RETURNS text
STABLE
RETURN format($sql$, numbered AS (
    SELECT id, nextval(%L) AS i, i AS old_i, geo, jsondata, xyz FROM gone
), tombs AS (
    SELECT id, i, geo, old_i, jsondata AS old_json, xyz AS old_xyz,
           naksha_with_xyz(jsondata, %s || %s) AS jsondata
      FROM numbered
)%s, entombed AS (
    INSERT INTO %I SELECT i, geo, jsondata FROM tombs
    ON CONFLICT ((jsondata->>'id') text_pattern_ops) DO UPDATE
       SET i = excluded.i, geo = excluded.geo, jsondata = excluded.jsondata
)$sql$,
    naksha_numbers(c), naksha_moved_sql('DELETE'), marks, naksha_kept_sql(day, $sql$
    SELECT old_i, geo, naksha_closed(old_json, $1) FROM tombs UNION ALL
    SELECT i, geo, naksha_closed(jsondata, $1) FROM tombs$sql$), c.id || '_del');

-- A CTE with the area of boxes, and their corners (015); both null without a box. (This takes less
-- time than ST_Extent does for the area alone.)
CREATE OR REPLACE FUNCTION naksha_extent_sql(boxes text) RETURNS text
STABLE
RETURN format($sql$, extent AS (
    SELECT ST_MakeEnvelope(min(ST_XMin(box)), min(ST_YMin(box)), max(ST_XMax(box)),
                           max(ST_YMax(box)), 4326) AS area,
           array_agg(DISTINCT naksha_corners(box)) AS corners
      FROM (%s OFFSET 0) AS boxes WHERE box IS NOT NULL
)$sql$, boxes);

-- Raises the error of a verdict.
CREATE OR REPLACE FUNCTION naksha_raise_verdict(c naksha_collection, bad jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    detail jsonb := bad - 'verdict' || jsonb_build_object('collection', naksha_name(c));
    id     text := left(bad->>'feature', 64);
BEGIN
    CASE bad->>'verdict'
        WHEN 'MISSING' THEN PERFORM naksha_raise('N0004',
            format('Feature %L does not exist; create it, or correct its id', id), detail);
        WHEN 'EXISTS' THEN PERFORM naksha_raise('N0003',
            format('Feature %L already exists; update it, or choose another id', id), detail);
        WHEN 'LIVE' THEN PERFORM naksha_raise('N0005',
            format('Feature %L is not deleted; delete it before you purge it', id), detail);
        -- A later transaction changed the feature, or another session created it, and maybe changed
        -- or deleted it, after the rows to lock were looked up.
        WHEN 'OVERTAKEN' THEN PERFORM naksha_check_order(9223372036854775807, naksha_name(c));
        ELSE PERFORM naksha_raise('N0005', format('Feature %L was changed since it was read; merge '
            'it with the head in this error', id), detail || '{"field": "uuid"}');
    END CASE;
END $$;

-- After one leaf is written: raises verdicts, and checks the order with a new snapshot.
CREATE OR REPLACE FUNCTION naksha_leaf_check(c naksha_collection, txn int8, r naksha_written)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    created int8 := coalesce(cardinality(r.created), 0);
    gone    int8[];
    buried  int8;
BEGIN
    IF r.bad IS NOT NULL THEN
        PERFORM naksha_raise_verdict(c, r.bad);
    END IF;
    IF created > 0 THEN
        -- With a new snapshot: while the statement waited to insert, another transaction may have
        -- restored the feature and deleted it again, so that its tombstone is not the one seen.
        IF r.tombs IS NOT NULL THEN
            SELECT u.removed, u.latest INTO gone, buried
              FROM naksha_untomb(c, txn, r.created) u;
        ELSIF naksha_dead(c, r.created, 9223372036854775807) IS NOT NULL THEN
            PERFORM naksha_raise_verdict(c, '{"verdict": "OVERTAKEN"}');
        END IF;
        -- In a separate statement, which sees a purge that the previous one may have waited for.
        buried := greatest(buried, naksha_last_purge(c, txn));
    END IF;
    IF gone IS DISTINCT FROM r.tombs OR greatest(r.latest, buried, c.txn) > txn THEN
        PERFORM naksha_raise_verdict(c, '{"verdict": "OVERTAKEN"}');
    END IF;
END $$;

-- The same, and counts. Only a naksha_write that was running when the schema was upgraded calls it:
-- it counted leaf by leaf, in here.
CREATE OR REPLACE FUNCTION naksha_leaf_done(c naksha_collection, txn int8, r naksha_written)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    created int8 := coalesce(cardinality(r.created), 0);
BEGIN
    PERFORM naksha_leaf_check(c, txn, r);
    IF created + r.updated + r.deleted > 0 OR r.area IS NOT NULL THEN
        PERFORM naksha_tx_count(c, created, r.updated, r.deleted, 0, r.area);
    END IF;
END $$;

-- Runs the statement of a leaf with a kept plan: made without knowing the values, and once for
-- empty and full tables alike, so it has to use the indices.
CREATE OR REPLACE FUNCTION naksha_write_few(statement text, literals text) RETURNS naksha_written
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan SET array_nulls = on AS $$
DECLARE
    r naksha_written;
BEGIN
    EXECUTE naksha_prepared(
        'int8, text, text, text, int8, int8, text[], jsonb[], bytea[], text[], jsonb[], text[], '
        'int8[], text[], text, text, bool', statement) || literals INTO r;
    RETURN r;
END $$;

-- Runs the statement of a leaf. All of them have the same parameters:
-- $1 txn $2 GUID prefix $3 author $4 app id $5 now $6 wall clock
-- $7 ids $8 contents $9 WKB $10 qrids $11 tags $12 crids $13 locks (the i that must be HEAD's)
-- $14 muuids $15 mode $16 author of new features $17 return features
-- For a few small features the plan is kept. For others it is made each time, and their content is
-- not written out as literals: that takes several times their size.
CREATE OR REPLACE FUNCTION naksha_write_leaf(
    txn int8, prefix text, author text, app_id text, now_ms int8, clock_ms int8, ids text[],
    contents jsonb[], wkbs bytea[], qrids text[], tags jsonb[], crids text[], locks int8[],
    muuids text[], mode text, new_author text, want bool, statement text) RETURNS naksha_written
LANGUAGE plpgsql SET search_path FROM CURRENT SET work_mem = '64MB' AS $$
DECLARE
    r naksha_written;
BEGIN
    IF cardinality(ids) > 50
       OR coalesce(pg_column_size(contents), 0) + coalesce(pg_column_size(wkbs), 0) > 65536 THEN
        EXECUTE statement INTO r
          USING txn, prefix, author, app_id, now_ms, clock_ms, ids, contents, wkbs, qrids, tags,
                crids, locks, muuids, mode, new_author, want;
        RETURN r;
    END IF;
    RETURN naksha_write_few(statement,
        format('(%L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L, %L)',
               txn, prefix, author, app_id, now_ms, clock_ms, ids, contents, wkbs, qrids, tags,
               crids, locks, muuids, mode, new_author, want));
END $$;

-- Writes in each of the `modes` create, update, upsert, delete, unmask (delete with a tombstone
-- that masks nothing) and restore; an id is in one of them only. With several modes, `locked` are
-- all ids sorted by (leaf, id), and `locked_counts` their number for each leaf. `resolved` is the
-- `txn` of the collection that the caller has read.
CREATE OR REPLACE FUNCTION naksha_write(
    collection_id text, modes text[], counts int[], ids text[], contents jsonb[] DEFAULT NULL,
    wkbs bytea[] DEFAULT NULL, qrids text[] DEFAULT NULL, tags jsonb[] DEFAULT NULL,
    crids text[] DEFAULT NULL, locks int8[] DEFAULT NULL, muuids text[] DEFAULT NULL,
    want bool DEFAULT false, resolved int8 DEFAULT NULL, locked text[] DEFAULT NULL,
    locked_counts int[] DEFAULT NULL) RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c       naksha_collection := naksha_open(collection_id, resolved);
    app_id  text := naksha_app_id();
    author  text := naksha_author();
    txn     int8;
    prefix  text;
    day     text;
    known   int8;
    mode    text;
    part    text;
    lo      int := 1;
    hi      int;
    r       naksha_written;
    created int8 := 0;
    updated int8 := 0;
    deleted int8 := 0;
    area    geometry;
    corners int8[];
BEGIN
    PERFORM naksha_mark_own();
    known := naksha_lock_known(c, coalesce(locked, ids), coalesce(locked_counts, counts));
    txn := naksha_txn();
    IF c.partitions = 1 THEN
        counts := naksha_one_leaf(counts);
    END IF;
    prefix := naksha_guid_prefix(naksha_storage_id(), naksha_name(c), txn);
    -- New features leave nothing to the history, whose partition would have to be created.
    day := CASE WHEN known > 0 THEN naksha_history_day(c, txn)
                WHEN c.off_since IS NULL THEN naksha_partition_of(c.id || '_hst', txn) END;
    FOR n IN 1..cardinality(counts) LOOP
        CONTINUE WHEN counts[n] = 0;
        mode := modes[1 + (n - 1) / 16];
        part := c.id || '_p' || to_hex((n - 1) % 16);
        hi := lo + counts[n] - 1;
        r := naksha_write_leaf(txn, prefix, author, app_id, naksha_epoch_ms(naksha_now()),
            naksha_clock_ms(), ids[lo:hi], contents[lo:hi], wkbs[lo:hi], qrids[lo:hi], tags[lo:hi],
            crids[lo:hi], locks[lo:hi], muuids[lo:hi], mode, coalesce(author, c.author, app_id),
            want, CASE WHEN mode IN ('delete', 'unmask') THEN naksha_delete_sql(c, part, day)
                       WHEN mode = 'restore' THEN naksha_restore_sql(c, part, day)
                       ELSE naksha_put_sql(c, part, day) END);
        IF known = 0 AND day IS NULL AND r.bad IS NULL AND r.updated + r.deleted > 0 THEN
            PERFORM naksha_raise_verdict(c, '{"verdict": "OVERTAKEN"}');
        END IF;
        PERFORM naksha_leaf_check(c, txn, r);
        created := created + coalesce(cardinality(r.created), 0);
        updated := updated + r.updated;
        deleted := deleted + r.deleted;
        area := CASE WHEN area IS NULL THEN r.area ELSE ST_Envelope(ST_Collect(area, r.area)) END;
        corners := corners || r.corners;
        RETURN QUERY SELECT * FROM unnest(r.outcomes);
        lo := hi + 1;
    END LOOP;
    IF created + updated + deleted > 0 OR area IS NOT NULL THEN
        PERFORM naksha_tx_count(c, created, updated, deleted, 0, area, naksha_cover(corners));
    END IF;
END $$;

-- The first write of a transaction, which it starts, on a branch if there are `overlays`. As a
-- statement of its own it is a whole transaction, and adds the messages if it has changed
-- something.
CREATE OR REPLACE FUNCTION naksha_write_first(
    app_id text, author text, at timestamptz, import bool, overlays int4[], txns int8[],
    message_ids text[], messages text[], collection_id text, modes text[], counts int[],
    ids text[], contents jsonb[], wkbs bytea[], qrids text[], tags jsonb[], crids text[],
    locks int8[], muuids text[], want bool, resolved int8, locked text[], locked_counts int[])
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_tx_start(app_id, author, at, import);
    IF overlays IS NOT NULL THEN
        PERFORM naksha_tx_branch(overlays, txns);
    END IF;
    RETURN QUERY SELECT * FROM naksha_write(
        collection_id, modes, counts, ids, contents, wkbs, qrids, tags, crids, locks, muuids, want,
        resolved, locked, locked_counts);
    IF message_ids IS NOT NULL AND naksha_logged_txn() IS NOT NULL THEN
        PERFORM naksha_tx_message(m.id, m.message)
           FROM unnest(message_ids, messages) AS m(id, message);
    END IF;
END $$;
