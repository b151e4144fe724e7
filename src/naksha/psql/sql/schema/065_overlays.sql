-- Branches (docs/decisions/0050): the tables of an overlay, created at the first write to a
-- collection, and the states that are copied into them from the layers below. A transaction
-- declares once that it works on a branch; from then on the writing functions write there.
--
-- Tables of overlay o of collection number n: naksha_o{o}_{n} with one leaf, _p0, for all ids, _del
-- and _hst as everywhere, and _ids: all ids that the overlay has ever had a state of. These ids are
-- hidden in the layers below; concurrent writers of a feature that is new to the overlay collide on
-- that table's key.

CREATE OR REPLACE FUNCTION naksha_overlay_new() RETURNS int4
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    INSERT INTO naksha_overlay (number) VALUES (nextval('naksha_overlay_seq')) RETURNING number;
END;

-- Waits for writers of the overlay; maintenance removes its tables. A missing overlay is ignored.
CREATE OR REPLACE FUNCTION naksha_overlay_drop(overlay_number int4) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    DELETE FROM naksha_overlay WHERE number = overlay_number;
    UPDATE naksha_collection SET dropped_at = 1, delete_at = 1
     WHERE overlay = overlay_number AND overlay <> 0;
END $$;

-- Waits for writers of the overlay, but not forever: one of them may be waiting for this session.
-- Later writers queue behind it; a lock on the row would let them pass.
CREATE OR REPLACE FUNCTION naksha_overlay_freeze(overlay_number int4) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET lock_timeout = '2s'
AS $$
BEGIN
    PERFORM naksha_mark_own();
    PERFORM pg_advisory_xact_lock(naksha_lock_class(), -overlay_number);
    UPDATE naksha_overlay SET frozen = true WHERE number = overlay_number;
EXCEPTION WHEN lock_not_available THEN
    PERFORM naksha_raise('40001', format('Another transaction is writing to the branch '
                         '(overlay %s)', overlay_number), '{}', 'Retry the transaction');
END $$;

-- Puts this transaction on a branch: layers topmost first, main (0) last. The first has no `txn`,
-- the others are read at theirs.
CREATE OR REPLACE FUNCTION naksha_tx_branch(overlays int4[], txns int8[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    app_id  text := naksha_app_id();
    depth   int := cardinality(overlays);
    missing int4;
BEGIN
    IF depth < 2 OR overlays[depth] <> 0 OR txns[1] IS NOT NULL
       OR array_position(txns[2:depth], NULL) IS NOT NULL OR cardinality(txns) <> depth THEN
        PERFORM naksha_raise('N0000', 'The layers are not those of a branch that can be written to',
            '{"field": "layers"}',
            'Pass the topmost layer first, without a txn, then the others with theirs, and main '
            '(0) last');
    END IF;
    IF split_part(current_setting(naksha_var('txn'), true), ':', 1)
       = current_setting('naksha.xid') THEN
        PERFORM naksha_raise('N0009', 'A transaction cannot enter a branch after it has written',
                             '{}', 'Call naksha_tx_branch before the first write');
    END IF;
    PERFORM pg_advisory_xact_lock_shared(naksha_lock_class(), -overlays[1]);
    -- No overlay can be dropped during the write.
    PERFORM FROM naksha_overlay WHERE number = ANY(overlays) ORDER BY number FOR KEY SHARE;
    SELECT o INTO missing FROM unnest(overlays[1:depth - 1]) o
     WHERE NOT EXISTS (SELECT FROM naksha_overlay n WHERE n.number = o) LIMIT 1;
    IF FOUND THEN
        PERFORM naksha_raise('N0011', format('The branch was deleted while it was in use '
                             '(overlay %s)', missing),
                             '{"field": "layers"}', 'Use another branch');
    END IF;
    IF EXISTS (SELECT FROM naksha_overlay n WHERE n.number = overlays[1] AND n.frozen) THEN
        PERFORM naksha_raise('N0005', 'The branch was rebased; open it again',
                             '{"field": "layers"}');
    END IF;
    PERFORM set_config(naksha_var('branch'), jsonb_build_object(
        'xid', current_setting('naksha.xid'),
        'layers', (SELECT jsonb_agg(jsonb_build_array(l.o, l.txn) ORDER BY l.n)
                     FROM unnest(overlays, txns) WITH ORDINALITY AS l(o, txn, n)))::text, true);
END $$;

CREATE OR REPLACE FUNCTION naksha_create_overlay_tables(name text, points_only bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    columns text := 'i int8 NOT NULL, geo geometry(GeometryZ, 4326), jsondata jsonb NOT NULL';
    hint    text := 'Call naksha_tx_branch and then naksha_upsert, as the library does';
BEGIN
    PERFORM naksha_mark_own();
    IF name !~ '^naksha_o\d+_\d+$'
       OR NOT EXISTS (SELECT FROM naksha_collection c WHERE c.id = name AND c.overlay <> 0) THEN
        PERFORM naksha_raise('N0008', format('%L is not a collection on a branch; its name '
                             'must be naksha_oNUMBER_NUMBER', name),
                             '{"field": "name"}');
    END IF;
    EXECUTE format('CREATE TABLE %I (%s) PARTITION BY LIST '
                   '((substring(md5(jsondata->>''id''), 1, 1)))', name, columns);
    PERFORM naksha_create_leaves(name, points_only, 1),
            naksha_create_side_tables(name, points_only);
    EXECUTE format('CREATE TABLE %I (id text COLLATE "C" PRIMARY KEY)', name || '_ids');
    PERFORM naksha_guard(t.tbl, 'INSERT OR UPDATE OR DELETE OR TRUNCATE', hint)
       FROM unnest(ARRAY[name, name || '_p0', name || '_ids']) AS t(tbl);
END $$;

-- The hidden collection of an overlay; concurrent sessions that need it create it only once.
CREATE OR REPLACE FUNCTION naksha_overlay_create(b naksha_collection, top int4)
RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    made naksha_collection;
BEGIN
    PERFORM naksha_mark_own();
    INSERT INTO naksha_collection (id, number, txn, max_age, points_only, created_txn, overlay,
                                   base)
    VALUES (format('naksha_o%s_%s', top, b.number), nextval('naksha_hidden_number_seq'), b.txn,
            b.max_age, b.points_only, b.txn, top, b.id)
    ON CONFLICT DO NOTHING RETURNING * INTO made;
    IF made.id IS NULL THEN
        SELECT * INTO made FROM naksha_collection h WHERE h.base = b.id AND h.overlay = top;
    ELSE
        PERFORM naksha_create_overlay_tables(made.id, made.points_only);
    END IF;
    RETURN made;
END $$;

-- Creates the tables, and the history partition for `now_ms`, before a transaction needs them: the
-- transaction that creates them blocks all other writers of the branch until it ends.
CREATE OR REPLACE FUNCTION naksha_overlay_prepare(
    collection_id text, overlay_number int4, now_ms int8 DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    b     naksha_collection := naksha_open_main(collection_id);
    c     naksha_collection;
    today int8 := naksha_txn(coalesce(to_timestamp(now_ms / 1000.0), now()), 0);
BEGIN
    PERFORM FROM naksha_overlay WHERE number = overlay_number FOR KEY SHARE;
    IF FOUND AND b.off_since IS NULL THEN
        c := naksha_overlay_create(b, overlay_number);
        PERFORM naksha_history_day(
            c, greatest(today, (SELECT last_value FROM naksha_tx_object_id_seq)));
    END IF;
END $$;

-- The overlay of a collection for writing. The collection's own settings of ids and authors apply
-- here too, and a later change of them is a conflict as on main.
CREATE OR REPLACE FUNCTION naksha_open_overlay(b naksha_collection) RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    top  int4 := naksha_top_overlay();
    base int8 := (naksha_branch()->-1->>1)::int8;
    c    naksha_collection;
BEGIN
    IF b.created_txn > base THEN
        PERFORM naksha_raise('N0002', format('The collection %L does not exist on this branch',
                             b.id), jsonb_build_object('collection', b.id));
    END IF;
    -- If history was switched off later, main may still be readable at the base; naksha_copy checks
    -- that.
    IF b.off_since <= base THEN
        PERFORM naksha_raise('N0009', format('Collection %L keeps no history, so it cannot be '
            'written to on a branch', b.id), jsonb_build_object('collection', b.id),
            'Enable the history of the collection on main');
    END IF;
    SELECT * INTO c FROM naksha_collection h WHERE h.base = b.id AND h.overlay = top;
    IF NOT FOUND THEN
        c := naksha_overlay_create(b, top);
    END IF;
    PERFORM naksha_wait_lock(16 + c.number, true,
                             format('the write gate of collection %L on a branch', b.id));
    c.txn := b.txn;
    c.id_prefix := b.id_prefix;
    c.author := b.author;
    RETURN c;
END $$;

-- ---- From below ---------------------------------------------------------------------------------

-- The states of the ids that a table has at transaction `at`, as they were then: without their end.
-- The query locks the table and all its indices; the locks are released by rolling back a
-- subtransaction.
CREATE OR REPLACE FUNCTION naksha_states_at(
    tbl text, at int8, ids text[], OUT keys text[], OUT numbers int8[], OUT geos geometry[],
    OUT documents jsonb[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format(
        'SELECT array_agg(jsondata->>''id''), array_agg(i), array_agg(geo), '
        'array_agg(naksha_closed(jsondata, 0)) FROM %I WHERE jsondata->>''id'' = ANY($1) '
        'AND substring(md5(jsondata->>''id''), 1, 1) = ANY($3) AND naksha_xyz_txn(jsondata) <= $2 '
        'AND (naksha_xyz_txn_next(jsondata) = 0 OR naksha_xyz_txn_next(jsondata) > $2)', tbl)
       INTO keys, numbers, geos, documents
      USING ids, at, ARRAY(SELECT DISTINCT naksha_leaf(n) FROM unnest(ids) n);
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' OR undefined_table THEN
    RETURN;
END $$;

-- The partitions of a history that can contain a state of transaction `at`, oldest first. Its
-- catalog locks are released, too.
CREATE OR REPLACE FUNCTION naksha_history_since(collection_id text, at int8) RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    parts text[];
BEGIN
    parts := ARRAY(SELECT p.name FROM naksha_partitions(collection_id || '_hst') p
                    WHERE p.hi > at);
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' THEN
    RETURN parts;
END $$;

-- Copies from one layer, table by table: a statement on a whole history would lock all its
-- partitions and their indices. A state only moves from HEAD or the deletion table to the history,
-- so reading these first finds it wherever it is. If partitions were created or merged meanwhile,
-- features that were not found are searched again.
CREATE OR REPLACE FUNCTION naksha_copy(
    c naksha_collection, below naksha_collection, at int8, ids text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    parts text[] := naksha_history_since(below.id, at);
    known text[];
    tbl   text;
    s     record;
BEGIN
    PERFORM naksha_mark_own();
    LOOP
        FOREACH tbl IN ARRAY ARRAY[below.id, below.id || '_del'] || parts LOOP
            EXIT WHEN ids = '{}';
            SELECT * INTO s FROM naksha_states_at(tbl, at, ids);
            CONTINUE WHEN s.keys IS NULL;
            EXECUTE format(
                'WITH source AS (SELECT i, geo, jsondata FROM unnest($1, $2, $3) '
                'AS s(i, geo, jsondata)), live AS (INSERT INTO %I SELECT * FROM source '
                'WHERE naksha_xyz_action(jsondata) <> ''DELETE'' ON CONFLICT DO NOTHING) '
                'INSERT INTO %I SELECT * FROM source '
                'WHERE naksha_xyz_action(jsondata) = ''DELETE'' ON CONFLICT DO NOTHING',
                c.id || '_p0', c.id || '_del') USING s.numbers, s.geos, s.documents;
            ids := ARRAY(SELECT n FROM unnest(ids) n WHERE n <> ALL(s.keys));
        END LOOP;
        known := parts;
        parts := naksha_history_since(below.id, at);
        EXIT WHEN parts = known OR ids = '{}';
    END LOOP;
    IF at < naksha_floor(below.id) THEN
        PERFORM naksha_raise('N0012', format('The version of collection %L that the branch is '
            'based on has expired', naksha_name(c)),
            jsonb_build_object('collection', naksha_name(c)),
            'Rebase the branch onto a later version');
    END IF;
END $$;

-- Copies the given features that the overlay does not contain yet, each from the topmost layer that
-- contains it.
CREATE OR REPLACE FUNCTION naksha_fill(c naksha_collection, ids text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    fresh text[];
    layer jsonb;
    below naksha_collection;
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE format('WITH fresh AS (INSERT INTO %I SELECT n FROM unnest($1) n '
                   'ON CONFLICT DO NOTHING RETURNING id) SELECT array_agg(id) FROM fresh',
                   c.id || '_ids') INTO fresh USING ids;
    FOR layer IN SELECT l.layer FROM jsonb_array_elements(naksha_branch() - 0) AS l(layer) LOOP
        EXIT WHEN fresh IS NULL;
        SELECT * INTO below FROM naksha_collection b
         WHERE CASE WHEN layer->>0 = '0' THEN b.id = c.base
                    ELSE b.base = c.base AND b.overlay = (layer->>0)::int4 END;
        CONTINUE WHEN NOT FOUND;
        PERFORM naksha_copy(c, below, (layer->>1)::int8, fresh);
        IF below.overlay <> 0 THEN
            EXECUTE format('SELECT array_agg(n) FROM unnest($1) n '
                           'WHERE NOT EXISTS (SELECT FROM %I m WHERE m.id = n)', below.id || '_ids')
               INTO fresh USING fresh;
        END IF;
    END LOOP;
END $$;

-- ---- Finding a state ----------------------------------------------------------------------------

-- The state with number `state_i` of a collection, when one of its overlays has it. `since` is the
-- first transaction that may have ended it.
CREATE OR REPLACE FUNCTION naksha_overlay_state(
    collection_id text, state_i int8, since int8, OUT id text, OUT feature bytea)
RETURNS SETOF record
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT h.id FROM naksha_collection h
                 WHERE h.base = collection_id AND h.dropped_at = 0 ORDER BY h.overlay DESC LOOP
        RETURN QUERY EXECUTE format(
            'SELECT jsondata->>''id'', naksha_feature(geo, jsondata) FROM %I WHERE i = $1 '
            'UNION ALL '
            'SELECT jsondata->>''id'', naksha_feature(geo, jsondata) FROM %I WHERE i = $1 '
            'UNION ALL '
            'SELECT jsondata->>''id'', naksha_feature(geo, jsondata) FROM %I '
            'WHERE i = $1 AND naksha_xyz_txn_next(jsondata) >= $2 LIMIT 1',
            name, name || '_del', name || '_hst') USING state_i, since;
        EXIT WHEN FOUND;
    END LOOP;
END $$;

SELECT naksha_guard('naksha_overlay', 'INSERT OR UPDATE OR DELETE OR TRUNCATE',
                    'Use naksha_overlay_new() or naksha_overlay_drop(number)');
