-- Day partitions of the log and of histories, their guards and indices.

-- Refuses direct writes to tables that only the storage may write; the trigger's argument names the
-- function to use instead.
CREATE OR REPLACE FUNCTION naksha_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_raise('N0008', format('%s on table %I is not allowed, because only the storage '
        'writes to it', TG_OP, TG_TABLE_NAME),
        jsonb_build_object('field', TG_TABLE_NAME),
        coalesce(TG_ARGV[0],
                 'Write to the HEAD table of the collection; triggers update the other tables'));
    RETURN NULL;
END $$;

-- Condition of all triggers here: the statement does not belong to one of the storage's own
-- functions, which mark the trigger depth that they run at (naksha_mark_own). Triggers made by
-- older versions test naksha.managed, which those functions still set; naksha_mend_triggers
-- replaces them.
CREATE OR REPLACE FUNCTION naksha_trigger_when() RETURNS text
IMMUTABLE
RETURN 'current_setting(''naksha.depth'', true) IS DISTINCT FROM pg_trigger_depth()::text';

-- Without enable_seqscan = off, a session that planned this with few triggers would scan all of
-- them for every new table.
CREATE OR REPLACE FUNCTION naksha_guard(tbl text, ops text, hint text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
    IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'naksha_guard'
                  AND tgrelid = to_regclass(quote_ident(tbl))) THEN
        RETURN;
    END IF;
    EXECUTE format(
        'CREATE TRIGGER naksha_guard BEFORE %s ON %I FOR EACH STATEMENT '
        'WHEN (%s) EXECUTE FUNCTION naksha_refuse(%s)', ops, tbl, naksha_trigger_when(),
        coalesce(quote_literal(hint), ''));
END $$;

-- Whether a table was created by this storage, and so has its guard. A user's table may have any
-- name, including one that looks like a history.
CREATE OR REPLACE FUNCTION naksha_is_ours(tbl regclass) RETURNS bool
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                    WHERE t.tgrelid = tbl AND t.tgname = 'naksha_guard'
                      AND p.pronamespace = quote_ident(current_schema())::regnamespace);
END;

-- Locks a table of the storage's schema until the end of the transaction. From then on its
-- unqualified name means that table, and not one of a later schema on the search path or a
-- temporary one, which a caller may have created: functions that run as the owner must not touch
-- those.
CREATE OR REPLACE FUNCTION naksha_hold(tbl text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS SHARE MODE', current_schema(), tbl);
END $$;

-- The same, and refuses a table that the storage did not create.
CREATE OR REPLACE FUNCTION naksha_hold_own(tbl text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_hold(tbl);
    IF NOT naksha_is_ours(format('%I.%I', current_schema(), tbl)::regclass) THEN
        PERFORM naksha_raise('N0008', format('Table %I was not created by the storage, which only '
            'changes its own tables', tbl), jsonb_build_object('field', tbl),
            'Rename or remove the table');
    END IF;
END $$;

-- Indices of one table of a collection that it has from the beginning: for its keys, for boxes and,
-- in the history, for the time. `kind` is head, del or hst. Tombstones in the history are only in
-- the indices on i, id and action, so the others are partial there.
CREATE OR REPLACE FUNCTION naksha_create_first_indices(tbl text, kind text, points_only bool)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF kind = 'hst' THEN
        EXECUTE format('CREATE INDEX %I ON %I (i)', tbl || '_i', tbl);
        EXECUTE format('CREATE INDEX %I ON %I ((jsondata->>''id'') text_pattern_ops, '
                       'naksha_xyz_txn(jsondata) DESC, naksha_xyz_txn_next(jsondata) DESC)',
                       tbl || '_id', tbl);
        EXECUTE format('CREATE INDEX %I ON %I (naksha_xyz_txn_next(jsondata))',
                       tbl || '_next', tbl);
        EXECUTE format('CREATE INDEX %I ON %I USING gist (geo, naksha_span(jsondata)) '
                       'WHERE naksha_xyz_action(jsondata) <> ''DELETE''', tbl || '_geo', tbl);
        RETURN;
    END IF;
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (i)', tbl, tbl || '_i');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I ((jsondata->>''id'') text_pattern_ops)',
                   tbl || '_id', tbl);
    IF kind = 'head' THEN
        PERFORM naksha_create_geo_index(tbl, points_only);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_create_geo_index(tbl text, points_only bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('CREATE INDEX %I ON %I USING %s', tbl || '_geo', tbl,
        CASE WHEN points_only THEN 'spgist (geo)' ELSE 'gist (geo, naksha_span(jsondata))' END);
END $$;

-- The secondary indices, which a table gets once it has so many rows that a full scan takes longer
-- (naksha_tables_to_index).
CREATE OR REPLACE FUNCTION naksha_create_other_indices(tbl text, kind text, points_only bool)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    live text := CASE kind WHEN 'hst'
        THEN ' WHERE naksha_xyz_action(jsondata) <> ''DELETE''' ELSE '' END;
    spans text := 'naksha_xyz_txn(jsondata) DESC, naksha_xyz_txn_next(jsondata) DESC';
BEGIN
    IF kind = 'del' THEN
        PERFORM naksha_create_geo_index(tbl, points_only);
    END IF;
    EXECUTE format('CREATE INDEX %I ON %I (naksha_xyz_txn(jsondata))%s', tbl || '_txn', tbl, live);
    EXECUTE format('CREATE INDEX %I ON %I '
                   '((naksha_xyz(jsondata)->>''mrid'') text_pattern_ops, %s)%s',
                   tbl || '_mrid', tbl, spans, live);
    EXECUTE format('CREATE INDEX %I ON %I '
                   '((naksha_xyz(jsondata)->>''qrid'') text_pattern_ops, %s)%s',
                   tbl || '_qrid', tbl, spans, live);
    EXECUTE format('CREATE INDEX %I ON %I (naksha_xyz_action(jsondata) text_pattern_ops, '
                   '(naksha_xyz(jsondata)->>''author'') text_pattern_ops DESC, %s)',
                   tbl || '_action', tbl, spans);
    EXECUTE format('CREATE INDEX %I ON %I USING gin ((naksha_xyz(jsondata)->''tags''))%s',
                   tbl || '_tags', tbl, live);
END $$;

-- All indices at once, for a table that is full or will be.
CREATE OR REPLACE FUNCTION naksha_create_indices(tbl text, kind text, points_only bool)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_create_first_indices(tbl, kind, points_only),
            naksha_create_other_indices(tbl, kind, points_only);
END $$;

-- Approximate number of rows of a table: the greater of two estimates, either of which may be
-- missing.
CREATE OR REPLACE FUNCTION naksha_about_rows(tbl regclass) RETURNS int8
STABLE
RETURN (SELECT greatest(k.reltuples::int8, pg_stat_get_live_tuples(k.oid), 0)
          FROM pg_class k WHERE k.oid = tbl);

-- Tables of a collection with its overlays, or of all, that have at least `rows_min` rows and lack
-- indices. The one on tags is created last.
CREATE OR REPLACE FUNCTION naksha_tables_to_index(
    collection_id text DEFAULT NULL, rows_min int8 DEFAULT 1000,
    OUT tbl text, OUT kind text, OUT points_only bool) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT k.relname, t.kind, c.points_only
      FROM naksha_collection c,
           LATERAL (SELECT to_regclass(quote_ident(c.id || '_del'))::oid, 'del'
                    UNION ALL
                    SELECT i.inhrelid, 'head' FROM pg_inherits i
                     WHERE i.inhparent = to_regclass(quote_ident(c.id))
                    UNION ALL
                    SELECT i.inhrelid, 'hst' FROM pg_inherits i
                     WHERE i.inhparent = to_regclass(quote_ident(c.id || '_hst'))) AS t(oid, kind)
           JOIN pg_class k ON k.oid = t.oid
     WHERE c.dropped_at = 0 AND (collection_id IS NULL OR coalesce(c.base, c.id) = collection_id)
       AND naksha_about_rows(k.oid) >= rows_min
       AND to_regclass(quote_ident(k.relname || '_tags')) IS NULL
     ORDER BY k.relname;
END;

-- Creates the secondary indices of a table, if they are missing. Writers wait until the end of the
-- transaction; if one holds its lock for longer than the timeout the caller retries later.
CREATE OR REPLACE FUNCTION naksha_index_table(tbl text, kind text, points_only bool) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '500ms' AS $$
BEGIN
    PERFORM naksha_hold(tbl);
    EXECUTE format('LOCK TABLE %I IN SHARE MODE', tbl);
    IF to_regclass(quote_ident(tbl || '_tags')) IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM naksha_create_other_indices(tbl, kind, points_only);
    RETURN true;
END $$;

-- The partition of `parent` that holds `txn`: a day, or what it was merged into.
CREATE OR REPLACE FUNCTION naksha_partition_of(parent text, txn int8) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    day text := parent || '_' || to_char(naksha_txn_day(txn), 'YYYY_MM_DD');
BEGIN
    -- A table of that name may belong to a user.
    IF pg_partition_root(to_regclass(quote_ident(day))) = to_regclass(quote_ident(parent)) THEN
        RETURN day;
    END IF;
    RETURN naksha_find_partition(parent, txn);
END $$;

-- The same by its bounds: a longer one may begin in the middle of its month or year. The catalog
-- locks of the query are released by rolling back a subtransaction.
CREATE OR REPLACE FUNCTION naksha_find_partition(parent text, txn int8) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    part text;
BEGIN
    SELECT p.name INTO part FROM naksha_partitions(parent) p WHERE p.lo <= txn AND txn < p.hi;
    RAISE EXCEPTION USING ERRCODE = 'N0010';
EXCEPTION WHEN SQLSTATE 'N0010' THEN
    RETURN part;
END $$;

-- Only one session at a time creates partitions of a table.
CREATE OR REPLACE FUNCTION naksha_lock_days(parent text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_wait_lock(-1 - (hashtext(parent) & 1073741823), false,
                             format('the partitions of %I', parent));
END $$;

-- Name of that partition, which is created if it is missing. Readers are not blocked: ATTACH takes
-- SHARE UPDATE EXCLUSIVE on the parent, and the CHECK avoids its scan.
CREATE OR REPLACE FUNCTION naksha_ensure_day(parent text, txn int8) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name text := naksha_partition_of(parent, txn);
BEGIN
    RETURN coalesce(name, naksha_make_day(parent, txn));
END $$;

-- Runs as the owner (160): the parent must be the log or the history of a collection.
CREATE OR REPLACE FUNCTION naksha_make_day(parent text, txn int8) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name text;
    span record;
BEGIN
    IF parent <> 'naksha_tx' AND parent NOT LIKE '%\_hst' THEN
        PERFORM naksha_raise('N0008', format('Table %I is neither the log nor the history of a '
            'collection', parent), jsonb_build_object('field', parent));
    END IF;
    PERFORM naksha_hold_own(parent), naksha_lock_days(parent);
    name := naksha_partition_of(parent, txn);
    IF name IS NULL THEN
        SELECT * INTO span FROM naksha_new_span(parent, naksha_txn_day(txn));
        name := parent || '_' || span.label;
        PERFORM naksha_create_partition(parent, name, span.from_day, span.to_day);
        PERFORM naksha_attach_partition(parent, name, span.from_day, span.to_day);
    END IF;
    RETURN name;
END $$;

-- An unattached table for the days [from_day, to_day), with its CHECK, guard and (history) indices.
CREATE OR REPLACE FUNCTION naksha_create_partition(
    parent text, name text, from_day date, to_day date) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS '
                   'INCLUDING STORAGE INCLUDING COMPRESSION)', name, parent);
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT naksha_bounds CHECK '
                   '(%2$s IS NOT NULL AND %2$s >= %3$s AND %2$s < %4$s)', name,
        CASE parent WHEN 'naksha_tx' THEN 'txn' ELSE 'naksha_xyz_txn_next(jsondata)' END,
        naksha_day_txn(from_day), naksha_day_txn(to_day));
    PERFORM naksha_guard(name, 'INSERT OR UPDATE OR DELETE OR TRUNCATE');
    IF parent <> 'naksha_tx' THEN
        EXECUTE format('ALTER TABLE %I REPLICA IDENTITY FULL', name);
        PERFORM naksha_create_first_indices(name, 'hst', false);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_attach_partition(
    parent text, name text, from_day date, to_day date) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
BEGIN
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', parent, name,
                   naksha_day_txn(from_day), naksha_day_txn(to_day));
    EXECUTE format('ALTER TABLE %I DROP CONSTRAINT IF EXISTS naksha_bounds', name);
END $$;

SELECT naksha_guard('naksha_tx', 'INSERT OR UPDATE OR DELETE OR TRUNCATE'),
       naksha_guard('naksha_version', 'INSERT OR UPDATE OR DELETE OR TRUNCATE');
