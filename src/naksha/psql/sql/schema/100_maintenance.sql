-- Maintenance: partitions merged by age, history and log expired, dropped collections removed,
-- statistics. naksha.psql.maintenance.rounds calls these functions one transaction at a time, and
-- itself runs statements that cannot run inside a function (VACUUM, DETACH CONCURRENTLY).

-- The partitions of a history or of the log with their bounds, oldest first.
CREATE OR REPLACE FUNCTION naksha_partitions(parent text)
RETURNS TABLE (name text, lo int8, hi int8, pending bool)
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT c.relname, b.bounds[1]::int8, b.bounds[2]::int8, i.inhdetachpending
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
           regexp_match(pg_get_expr(c.relpartbound, c.oid), '(\d+)\D+(\d+)') AS b(bounds)
     WHERE i.inhparent = to_regclass(quote_ident(parent))
     ORDER BY b.bounds[1]::int8;
END;

-- The month (7 letters of the date 'YYYY_MM_DD'), year (4), decade (3) or century (2) of a day.
CREATE OR REPLACE FUNCTION naksha_period(
    day date, letters int, OUT label text, OUT from_day date, OUT to_day date)
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
DECLARE
    years int := 10 ^ (4 - least(letters, 4));
BEGIN
    label := left(to_char(day, 'YYYY_MM_DD'), letters);
    IF letters = 7 THEN
        from_day := date_trunc('month', day::timestamp);
        to_day := from_day + interval '1 month';
    ELSE
        -- There is no year 0: the first decade and century begin with the year 1.
        from_day := make_date(greatest(extract(year FROM day)::int / years * years, 1), 1, 1);
        to_day := make_date((extract(year FROM day)::int / years + 1) * years, 1, 1);
    END IF;
END $$;

-- The part of the month, year or decade of a day that no partition covers yet.
CREATE OR REPLACE FUNCTION naksha_free_span(
    parent text, day date, letters int, OUT label text, OUT from_day date, OUT to_day date)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    SELECT q.label, greatest(q.from_day, max(naksha_txn_day(p.hi)) FILTER (WHERE p.hi <= n.txn)),
           least(q.to_day, min(naksha_txn_day(p.lo)) FILTER (WHERE p.lo > n.txn))
      INTO label, from_day, to_day
      FROM naksha_day_txn(day) AS n(txn), naksha_period(day, letters) q
      LEFT JOIN naksha_partitions(parent) p ON true
     GROUP BY q.label, q.from_day, q.to_day;
    IF to_regclass(quote_ident(parent || '_' || label)) IS NOT NULL THEN
        label := to_char(day, 'YYYY_MM_DD');
        from_day := day;
        to_day := day + 1;
    END IF;
END $$;

-- The range of a new partition for `day`: the day itself; but if days have not been merged for
-- long, the rest of the month, year or decade, so that the number of partitions is always bounded:
-- 50 days, 26 months, 24 years, then decades.
CREATE OR REPLACE FUNCTION naksha_new_span(
    parent text, day date, OUT label text, OUT from_day date, OUT to_day date)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    n record;
BEGIN
    SELECT count(*) FILTER (WHERE s.days = 1) AS days,
           count(*) FILTER (WHERE s.days BETWEEN 2 AND 31) AS months,
           count(*) FILTER (WHERE s.days BETWEEN 32 AND 366) AS years
      INTO n
      FROM (SELECT naksha_txn_day(p.hi) - naksha_txn_day(p.lo) AS days
              FROM naksha_partitions(parent) p) AS s;
    IF n.days >= 50 THEN
        SELECT * INTO label, from_day, to_day FROM naksha_free_span(parent, day,
            CASE WHEN n.months < 26 THEN 7 WHEN n.years < 24 THEN 4 ELSE 3 END);
    ELSE
        label := to_char(day, 'YYYY_MM_DD');
        from_day := day;
        to_day := day + 1;
    END IF;
END $$;

-- Nothing below this transaction can change any more: all is decided, and published.
CREATE OR REPLACE FUNCTION naksha_settled() RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    bound int8 := naksha_publish_bound();
BEGIN
    RETURN least(bound, (SELECT min(t.txn) FROM naksha_tx t WHERE t.seq_number IS NULL));
END $$;

CREATE OR REPLACE FUNCTION naksha_utc_day(epoch_ms int8) RETURNS date
IMMUTABLE PARALLEL SAFE
RETURN (to_timestamp(epoch_ms / 1000.0) AT TIME ZONE 'UTC')::date;

-- The first transaction that is recent enough to be kept for `keep_days`.
CREATE OR REPLACE FUNCTION naksha_cutoff(now_ms int8, keep_days int8) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN naksha_day_txn(naksha_utc_day(now_ms) - least(keep_days, 2000000)::int);

-- ---- Merging ------------------------------------------------------------------------------------

-- The next period of `parent` to merge into one partition, null if there is none. Days become
-- months and months years as soon as these are settled, but only where that does not keep expired
-- states much longer than `keep_days`; more than 24 years become decades. With too many partitions
-- (held by pins) reducing their number takes precedence.
CREATE OR REPLACE FUNCTION naksha_merge_next(
    parent text, keep_days int8, OUT label text, OUT from_day date, OUT to_day date)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    settled int8 := naksha_settled();
    -- "Forever" is a number near the end of int8, which cannot be doubled.
    twice   int8 := least(keep_days, 700000) * 2;
    levels  int[];
BEGIN
    SELECT array_remove(ARRAY[
            CASE WHEN 31 * 3 <= twice OR n.total > 100 THEN 7 END,
            CASE WHEN 366 * 3 <= twice OR n.total > 100 THEN 4 END,
            CASE WHEN n.years > 24 OR n.total > 100 THEN 3 END,
            CASE WHEN n.decades > 10 OR n.total > 100 THEN 2 END], NULL)
      INTO levels
      FROM (SELECT count(*) AS total, count(*) FILTER (WHERE s.days BETWEEN 32 AND 366) AS years,
                   count(*) FILTER (WHERE s.days BETWEEN 367 AND 3653) AS decades
              FROM (SELECT naksha_txn_day(p.hi) - naksha_txn_day(p.lo) AS days
                      FROM naksha_partitions(parent) p) AS s) AS n;
    SELECT q.label, q.from_day, q.to_day INTO label, from_day, to_day
      FROM unnest(levels) AS letters, naksha_partitions(parent) p,
           naksha_period(naksha_txn_day(p.lo), letters) q
     WHERE p.hi <= naksha_day_txn(q.to_day) AND naksha_day_txn(q.to_day) <= settled
     GROUP BY letters, q.label, q.from_day, q.to_day
    HAVING count(*) > 1 AND NOT bool_or(p.pending)
     ORDER BY letters DESC, q.from_day LIMIT 1;
END $$;

-- The number that distinguishes a table of this collection from one of a former collection of the
-- same name.
CREATE OR REPLACE FUNCTION naksha_parent_number(parent text) RETURNS int
STABLE
RETURN coalesce((SELECT c.number FROM naksha_collection c WHERE c.id || '_hst' = parent), 0);

-- Indices of a merged part of the log: those of naksha_tx, so that ATTACH finds them ready.
CREATE OR REPLACE FUNCTION naksha_create_log_indices(tbl text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('ALTER TABLE %I ADD CONSTRAINT %I PRIMARY KEY (txn, i), '
                   'ADD CONSTRAINT %I UNIQUE (txn, action, id)', tbl, tbl || '_pkey',
                   tbl || '_action');
    EXECUTE format('CREATE INDEX %I ON %I (id, txn)', tbl || '_id', tbl);
    EXECUTE format('CREATE INDEX %I ON %I USING gist (bbox)', tbl || '_bbox', tbl);
    EXECUTE format('CREATE INDEX %I ON %I (txn) WHERE seq_number IS NULL', tbl || '_open', tbl);
    EXECUTE format('CREATE INDEX %I ON %I (author, txn)', tbl || '_author', tbl);
    EXECUTE format('CREATE INDEX %I ON %I (app_id, txn)', tbl || '_app_id', tbl);
    EXECUTE format('CREATE INDEX %I ON %I (overlay, txn) WHERE overlay <> 0', tbl || '_overlay',
                   tbl);
    EXECUTE format('CREATE INDEX %I ON %I (txn) WHERE action = ''MESSAGE''', tbl || '_messages',
                   tbl);
END $$;

-- Builds the merged table beside the old ones, under a name of its own, in one transaction: so an
-- existing table is complete, and one that an earlier round could not attach is used again. Rows
-- are ordered by the month they began in, so that states valid at an older version lie together,
-- then by `geo` (PostGIS sorts along a Hilbert curve), so that a box is in few pages.
CREATE OR REPLACE FUNCTION naksha_merge_build(
    parent text, label text, from_day date, to_day date) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    tbl    text := parent || '_new_' || label;
    number text := naksha_parent_number(parent)::text;
    is_log bool := parent = 'naksha_tx';
    index  regclass;
    moved  int8;
BEGIN
    PERFORM naksha_mark_own();
    IF obj_description(to_regclass(quote_ident(tbl)), 'pg_class') = number THEN
        RETURN tbl;
    END IF;
    IF naksha_is_ours(to_regclass(quote_ident(tbl))) THEN
        EXECUTE format('DROP TABLE %I', tbl);
    END IF;
    PERFORM naksha_create_partition(parent, tbl, from_day, to_day);
    -- Indices are built in one go afterwards, which is faster and leaves them compact.
    FOR index IN SELECT x.indexrelid FROM pg_index x
                  WHERE x.indrelid = to_regclass(quote_ident(tbl)) LOOP
        EXECUTE format('DROP INDEX %s', index);
    END LOOP;
    EXECUTE format('INSERT INTO %I SELECT * FROM %I WHERE %s >= $1 AND %3$s < $2 ORDER BY %s',
        tbl, parent, CASE WHEN is_log THEN 'txn' ELSE 'naksha_xyz_txn_next(jsondata)' END,
        CASE WHEN is_log THEN 'txn, i'
             ELSE 'naksha_xyz_txn(jsondata) / 10000000000000, geo, i' END)
      USING naksha_day_txn(from_day), naksha_day_txn(to_day);
    GET DIAGNOSTICS moved = ROW_COUNT;
    IF is_log THEN
        PERFORM naksha_create_log_indices(tbl);
    ELSE
        PERFORM naksha_create_first_indices(tbl, 'hst', false);
        PERFORM naksha_create_other_indices(tbl, 'hst', false) WHERE moved >= 1000;
    END IF;
    EXECUTE format('COMMENT ON TABLE %I IS %L', tbl, number);
    RETURN tbl;
END $$;

-- Running transactions of this database (of `among`, if given), by virtual transaction id. A
-- snapshot older than the merged table would see it empty, so those that may have one must end
-- before it replaces the old ones. pg_locks is readable by every role.
CREATE OR REPLACE FUNCTION naksha_running(among text[] DEFAULT NULL) RETURNS text[]
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT coalesce(array_agg(l.virtualxid), '{}')
      FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
     WHERE l.locktype = 'virtualxid' AND l.granted AND l.pid <> pg_backend_pid()
       AND a.datname = current_database()
       AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
       AND (among IS NULL OR l.virtualxid = ANY(among));
END;

-- The swap: detaches the old partitions and attaches the merged one. Readers of the history wait
-- for it; if a reader or writer holds its lock for longer than the timeout, the swap fails, and is
-- retried later.
CREATE OR REPLACE FUNCTION naksha_merge_swap(
    parent text, label text, from_day date, to_day date) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    built text := parent || '_new_' || label;
    old   text[];
    name  text;
BEGIN
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    SELECT array_agg(p.name) INTO old FROM naksha_partitions(parent) p
     WHERE p.lo >= naksha_day_txn(from_day) AND p.hi <= naksha_day_txn(to_day);
    FOREACH name IN ARRAY old LOOP
        EXECUTE format('DROP TABLE %I', name);
    END LOOP;
    EXECUTE format('COMMENT ON TABLE %I IS NULL', built);
    FOR name IN SELECT c.relname FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid
                 WHERE x.indrelid = to_regclass(quote_ident(built)) LOOP
        EXECUTE format('ALTER INDEX %I RENAME TO %I', name,
                       parent || '_' || substr(name, length(parent) + length('_new_') + 1));
    END LOOP;
    name := parent || '_' || label;
    EXECUTE format('ALTER TABLE %I RENAME TO %I', built, name);
    PERFORM naksha_attach_partition(parent, name, from_day, to_day);
END $$;

-- ---- Expiry -------------------------------------------------------------------------------------

-- The oldest transaction that a pin keeps readable. The pins are locked, so that none is set on
-- what is about to be removed. The pins of a collection apply to its overlays too: a branch keeps
-- everything written to it for as long as its base is pinned.
CREATE OR REPLACE FUNCTION naksha_lowest_pin(collection_id text) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    LOCK TABLE naksha_pin IN SHARE MODE;
    RETURN (SELECT coalesce(min(p.txn), 9223372036854775807) FROM naksha_pin p
             WHERE collection_id IS NULL OR p.collection IS NULL OR p.collection = (
                   SELECT naksha_name(c) FROM naksha_collection c WHERE c.id = collection_id));
END $$;

-- Rows of a history partition that end at or before `upto`: the last such end, null for none.
CREATE OR REPLACE FUNCTION naksha_last_end(tbl text, upto int8 DEFAULT 9223372036854775807)
RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last int8;
BEGIN
    EXECUTE format('SELECT max(naksha_xyz_txn_next(jsondata)) FROM %I '
                   'WHERE naksha_xyz_txn_next(jsondata) <= $1', tbl) INTO last USING upto;
    RETURN last;
END $$;

CREATE OR REPLACE FUNCTION naksha_raise_floor(collection_id text, floor int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    UPDATE naksha_collection SET floor_txn = floor
     WHERE id = collection_id AND floor_txn < floor;
END;

-- The next step of expiring a collection's history that ended before a transaction, the first one
-- of a day. Returns the partition, and how it is removed:
--   detach: the floor is raised; the caller commits, then detaches and drops it
--   rows:   a pin needs some of it; what no pin needs was deleted
--   gone:   it was dropped here, under the write gate, because its day is not settled (no write
--           since then, or the caller's clock is ahead), so that a writer could still come
--   busy:   the same, but writers are at work
CREATE OR REPLACE FUNCTION naksha_expire_before(
    collection_id text, cutoff int8, OUT part text, OUT how text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
SET lock_timeout = '100ms' AS $$
DECLARE
    settled int8 := naksha_settled();
    pin     int8 := naksha_lowest_pin(collection_id);
    c       naksha_collection;
    p       record;
    last    int8;
    unused  int8;
BEGIN
    PERFORM naksha_mark_own();
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id FOR UPDATE;
    FOR p IN SELECT * FROM naksha_partitions(collection_id || '_hst')
              WHERE hi <= cutoff AND NOT pending LOOP
        part := p.name;
        IF p.hi > settled AND NOT pg_try_advisory_xact_lock(naksha_lock_class(), 16 + c.number) THEN
            how := 'busy';
            RETURN;
        END IF;
        last := naksha_last_end(p.name);
        IF coalesce(last, 0) <= pin THEN
            PERFORM naksha_raise_floor(c.id, last);
            how := 'detach';
            IF p.hi > settled THEN
                EXECUTE format('DROP TABLE %I', p.name);
                how := 'gone';
            END IF;
            RETURN;
        END IF;
        unused := naksha_last_end(p.name, pin);
        IF unused IS NOT NULL THEN
            PERFORM naksha_raise_floor(c.id, unused);
            EXECUTE format('DELETE FROM %I WHERE naksha_xyz_txn_next(jsondata) <= $1', p.name)
              USING unused;
            how := 'rows';
            RETURN;
        END IF;
    END LOOP;
    part := NULL;
END $$;

-- The same for what is older than the collection keeps it.
CREATE OR REPLACE FUNCTION naksha_expire_next(
    collection_id text, now_ms int8, OUT part text, OUT how text)
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT e.part, e.how FROM naksha_collection c,
           naksha_expire_before(c.id, naksha_cutoff(now_ms, c.max_age)) e
     WHERE c.id = collection_id;
END;

-- The next partition of the log to expire, null for none: older than the retention of the storage,
-- completely settled, below every pin, below the last version and folded (128). Its versions are
-- removed first, so that a request for one fails with Expired; rows that determine the floor of a
-- collection without history are kept.
CREATE OR REPLACE FUNCTION naksha_log_expire_next(now_ms int8) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
SET lock_timeout = '100ms' AS $$
DECLARE
    bound int8 := least(naksha_settled(), naksha_lowest_pin(NULL));
    p     record;
BEGIN
    PERFORM naksha_mark_own();
    bound := least(bound, (SELECT max(v.txn) FROM naksha_version v), naksha_folded_txn(),
        (SELECT naksha_cutoff(now_ms, s.tx_log_days) FROM naksha_storage s));
    SELECT * INTO p FROM naksha_partitions('naksha_tx') q
     WHERE q.hi <= bound AND NOT q.pending ORDER BY q.lo LIMIT 1;
    IF p.name IS NOT NULL THEN
        PERFORM naksha_raise_floor(c.id, naksha_last_write(c.id, c.off_since - 1))
           FROM naksha_collection c WHERE c.off_since IS NOT NULL;
        DELETE FROM naksha_version v WHERE v.txn < p.hi;
    END IF;
    RETURN p.name;
END $$;

-- ---- What was left behind -----------------------------------------------------------------------

-- Interrupted detaches; only expiry detaches, so they are to be completed.
CREATE OR REPLACE FUNCTION naksha_pending_detaches(OUT parent text, OUT part text)
RETURNS SETOF record
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT q.parent, p.name
      FROM (SELECT 'naksha_tx' AS parent UNION ALL
            SELECT c.id || '_hst' FROM naksha_collection c) AS q,
           naksha_partitions(q.parent) p
     WHERE p.pending;
END;

-- Drops tables that are not partitions any more (or not yet) and that no process will return to:
-- expired ones, and those of removed collections. Other tables are left alone.
CREATE OR REPLACE FUNCTION naksha_sweep() RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    t       record;
    dropped text[] := '{}';
    stale   bool;
BEGIN
    FOR t IN SELECT k.relname AS name, m.part[1] AS parent,
                    coalesce(m.part[2] = 'new_', false) AS is_new,
                    to_regclass(quote_ident(m.part[1])) IS NULL AS is_orphan
               FROM pg_class k, regexp_match(k.relname,
                        '^(.+_hst|naksha_tx)_(new_|from_)?\d{2,4}(_\d\d){0,2}$') AS m(part)
              WHERE k.relnamespace = quote_ident(current_schema())::regnamespace AND k.relkind = 'r'
                AND NOT k.relispartition AND m.part IS NOT NULL AND naksha_is_ours(k.oid) LOOP
        stale := t.is_orphan;
        IF NOT stale AND t.parent = 'naksha_tx' AND NOT t.is_new THEN
            EXECUTE format('SELECT coalesce(max(t.txn), 0) < (SELECT min(v.txn) '
                           'FROM naksha_version v) FROM %I AS t', t.name) INTO stale;
        ELSIF NOT stale AND NOT t.is_new THEN
            stale := coalesce(naksha_last_end(t.name), 0) <= (
                SELECT c.floor_txn FROM naksha_collection c WHERE c.id || '_hst' = t.parent);
        END IF;
        IF stale AND naksha_drop_swept(t.name) THEN
            dropped := dropped || t.name::text;
        END IF;
    END LOOP;
    RETURN dropped;
END $$;

-- Drops a table, or reports why it stays: one that cannot be dropped does not prevent the others.
CREATE OR REPLACE FUNCTION naksha_drop_swept(tbl text) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    reason text;
BEGIN
    EXECUTE format('DROP TABLE %I', tbl);
    RETURN true;
EXCEPTION WHEN dependent_objects_still_exist OR lock_not_available THEN
    GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
    RAISE WARNING 'Table % cannot be dropped: %', tbl, coalesce(nullif(reason, ''), SQLERRM);
    RETURN false;
END $$;

-- Merged tables of `parent` that were not attached and are of no use any more. The bounds let the
-- query use the index on names.
CREATE OR REPLACE FUNCTION naksha_sweep_merges(parent text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT k.relname FROM pg_class k
                 WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                   AND k.relkind = 'r'
                   AND k.relname >= (parent || '_new_')::name
                   AND k.relname < (parent || '_new`')::name
                   AND NOT k.relispartition AND starts_with(k.relname, parent || '_new_')
                   AND naksha_is_ours(k.oid) LOOP
        EXECUTE format('DROP TABLE %I', name);
    END LOOP;
END $$;

-- ---- Collections --------------------------------------------------------------------------------

-- Removes a dropped collection that is due, unless it is pinned: by its name, or by a pin on all
-- collections from a time when it still existed. The states of a dropped overlay are not needed by
-- any reader.
CREATE OR REPLACE FUNCTION naksha_destroy_due(collection_id text, now_ms int8) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    c naksha_collection;
BEGIN
    LOCK TABLE naksha_pin IN SHARE MODE;
    SELECT * INTO c FROM naksha_collection
     WHERE id = collection_id AND dropped_at <> 0 AND delete_at <= now_ms FOR UPDATE;
    IF NOT FOUND OR c.overlay = 0 AND EXISTS (
            SELECT FROM naksha_pin p WHERE p.collection = c.id
                OR (p.collection IS NULL AND p.txn < c.txn)) THEN
        RETURN false;
    END IF;
    PERFORM naksha_sweep_merges(c.id || '_hst');
    PERFORM naksha_collection_destroy(c.id);
    RETURN true;
END $$;

-- Refreshes the statistics in the collection's row and public info. Sizes are those of a sample
-- when the collection is large; the largest feature seen is remembered then.
CREATE OR REPLACE FUNCTION naksha_refresh_statistics(
    collection_id text, sample_rows int8 DEFAULT 20000) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
SET lock_timeout = '100ms' AS $$
DECLARE
    leaf   text;
    n      int8;
    sample text := '';
    sizes  record;
BEGIN
    PERFORM naksha_mark_own();
    FOR leaf IN SELECT k.oid::regclass FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
                 WHERE i.inhparent = to_regclass(quote_ident(collection_id))
                   AND (k.reltuples < 0
                        OR pg_stat_get_mod_since_analyze(k.oid) > k.reltuples / 10) LOOP
        EXECUTE format('ANALYZE %s', leaf);
    END LOOP;
    SELECT sum(greatest(k.reltuples, 0))::int8 INTO n
      FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid
     WHERE i.inhparent = to_regclass(quote_ident(collection_id));
    IF n > sample_rows THEN
        sample := format('TABLESAMPLE SYSTEM (%s)', 100.0 * sample_rows / n);
    END IF;
    EXECUTE format('SELECT max(octet_length(naksha_feature(geo, jsondata))) AS raw, '
                   'max(pg_column_size(jsondata)) AS stored FROM %I %s', collection_id, sample)
       INTO sizes;
    UPDATE naksha_collection c
       SET estimated_feature_count = n,
           byte_size = greatest(sizes.raw, CASE WHEN sample <> '' THEN c.byte_size END, 0),
           compressed_size =
               greatest(sizes.stored, CASE WHEN sample <> '' THEN c.compressed_size END, 0)
     WHERE c.id = collection_id
       AND (c.estimated_feature_count, c.byte_size, c.compressed_size) IS DISTINCT FROM
           (n, greatest(sizes.raw, CASE WHEN sample <> '' THEN c.byte_size END, 0)::int8,
            greatest(sizes.stored, CASE WHEN sample <> '' THEN c.compressed_size END, 0)::int8);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM naksha_write_comment(c.id) FROM naksha_collection c
      WHERE c.id = collection_id AND c.overlay = 0;
    RETURN true;
END $$;

-- Tomorrow's partition of the log, or of a history that is written to today.
CREATE OR REPLACE FUNCTION naksha_prepare_tomorrow(parent text, now_ms int8) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '100ms' AS $$
DECLARE
    today text := naksha_partition_of(parent, naksha_day_txn(naksha_utc_day(now_ms)));
    used  bool := false;
BEGIN
    IF parent = 'naksha_tx' THEN
        PERFORM naksha_prepare_log(now_ms);
    ELSIF today IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', today) INTO used;
    END IF;
    IF used THEN
        PERFORM naksha_ensure_day(parent, naksha_day_txn(naksha_utc_day(now_ms) + 1));
    END IF;
END $$;
