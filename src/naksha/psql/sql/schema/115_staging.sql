-- Features staged by jobs from many processes (naksha.spi.staging). Each attempt has a table of its
-- own and a row here, which contains the settings that its features were checked against, their
-- number in each leaf (null while it is open), and whether any has a lock. It is kept until
-- `until`. A process that applies parts locks their rows; sweeping and renewing skip locked rows.
-- All of it is logged: staged features survive a crash of the server, as they must when the other
-- parts of the job do.

CREATE TABLE IF NOT EXISTS naksha_staged (
    name        text COLLATE "C" PRIMARY KEY,
    job         text COLLATE "C" NOT NULL,
    collection  text COLLATE "C" NOT NULL,
    id_prefix   text,
    points_only bool NOT NULL,
    counts      int8[],
    has_locks   bool NOT NULL DEFAULT false,
    until       timestamptz NOT NULL
);
DO $$
BEGIN
    IF to_regclass('naksha_staged_job') IS NULL THEN
        CREATE INDEX naksha_staged_job ON naksha_staged (job);
    END IF;
    -- Some features of parts, sorted as naksha_write requires. `twice` is an id that occurs twice.
    IF to_regtype('naksha_staged_batch') IS NULL THEN
        CREATE TYPE naksha_staged_batch AS (
            twice text, leaves int2[], ids text[], contents jsonb[], wkbs bytea[], qrids text[],
            tags jsonb[], crids text[], locks int8[]);
    END IF;
END $$;

-- The settings of a collection that a job may write to, null if it is new; and whether it can be
-- filled by the bulk path: it is empty, and its leaves are not published to a replica.
CREATE OR REPLACE FUNCTION naksha_staged_look(
    collection_id text, OUT info jsonb, OUT is_empty bool)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    PERFORM naksha_check_collection_id(collection_id);
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id;
    is_empty := true;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF c.dropped_at <> 0 THEN
        PERFORM naksha_raise('N0001', 'The collection exists already, but is dropped; restore it '
            'or choose another id', jsonb_build_object('collection', collection_id));
    END IF;
    info := naksha_collection_info(c);
    EXECUTE format('SELECT NOT EXISTS (SELECT FROM %I) AND NOT EXISTS (SELECT FROM %I)',
                   c.id, c.id || '_del') INTO is_empty;
    is_empty := is_empty AND NOT naksha_is_published(c.id);
END $$;

-- ---- Attempts -----------------------------------------------------------------------------------

-- Extends the lease of a job's staged features. Parts that are being applied need no renewal.
CREATE OR REPLACE FUNCTION naksha_staged_renew(job_id text, new_until timestamptz) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    WITH mine AS (SELECT s.name FROM naksha_staged s WHERE s.job = job_id AND s.until < new_until
                   ORDER BY s.name FOR UPDATE SKIP LOCKED)
    UPDATE naksha_staged s SET until = new_until FROM mine WHERE s.name = mine.name;
END;

-- Whether a name has the form of those made by naksha_staged_open. Rows of naksha_staged may be
-- forged; functions that run as the owner (160) change and drop the tables named there.
CREATE OR REPLACE FUNCTION naksha_is_staged(tbl text) RETURNS bool
IMMUTABLE PARALLEL SAFE
RETURN tbl ~ '^naksha_staged_[0-9a-f]{8}_[0-9a-f]{32}$';

-- Begins an attempt; returns the name of its table. `head` and `tail` are the feature's JSON
-- without its namespace, as in 110; `given` is the sum of 1 if the client gave tags and 2 if it
-- gave a crid, `lock` is the `i` that HEAD must have. Large values are not compressed: they are
-- read once.
CREATE OR REPLACE FUNCTION naksha_staged_open(
    job_id text, collection_id text, prefix text, only_points bool, new_until timestamptz)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    tbl text := 'naksha_staged_' || left(md5(job_id), 8) || '_'
                || replace(gen_random_uuid()::text, '-', '');
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_staged_renew(job_id, new_until);
    INSERT INTO naksha_staged (name, job, collection, id_prefix, points_only, until)
    VALUES (tbl, job_id, collection_id, prefix, only_points, new_until);
    EXECUTE format('CREATE TABLE %I (leaf int2 NOT NULL, given int2 NOT NULL, lock int8, '
                   'id text COLLATE "C" NOT NULL, geo geometry, '
                   'head text NOT NULL, tail text NOT NULL) WITH (autovacuum_enabled = off)', tbl);
    EXECUTE format('ALTER TABLE %I ALTER geo SET STORAGE EXTERNAL, '
                   'ALTER head SET STORAGE EXTERNAL, ALTER tail SET STORAGE EXTERNAL', tbl);
    RETURN tbl;
END $$;

-- Closes an attempt with its number of features in each leaf. False if it was swept.
CREATE OR REPLACE FUNCTION naksha_staged_close(
    tbl text, features int8[], any_locks bool, new_until timestamptz) RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
BEGIN
    PERFORM naksha_mark_own();
    IF NOT naksha_is_staged(tbl) THEN
        PERFORM naksha_raise('N0008', format('Table %I does not exist or holds no staged features',
            tbl), jsonb_build_object('field', tbl));
    END IF;
    UPDATE naksha_staged s SET counts = features, has_locks = any_locks,
                               until = greatest(s.until, new_until)
     WHERE s.name = tbl;
    IF FOUND THEN
        EXECUTE format('CREATE INDEX ON %I.%I (leaf)', current_schema(), tbl);
    END IF;
    RETURN FOUND;
END $$;

-- Releases everything that a job has staged, or one attempt: it is swept next.
CREATE OR REPLACE FUNCTION naksha_staged_release(job_id text, tbl text DEFAULT NULL) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    UPDATE naksha_staged s SET until = '-infinity'
     WHERE s.job = job_id AND s.name = coalesce(tbl, s.name);
END;

-- Drops released and expired attempts, some at a time (each takes locks until the end of the
-- transaction); returns their number. A table in use is left to the next call.
CREATE OR REPLACE FUNCTION naksha_sweep_staged(at timestamptz, at_most int DEFAULT 100)
RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
SET lock_timeout = '100ms' SET client_min_messages = 'warning' AS $$
DECLARE
    tbl     text;
    dropped int := 0;
BEGIN
    PERFORM naksha_mark_own();
    FOR tbl IN SELECT s.name FROM naksha_staged s WHERE s.until < at ORDER BY s.name LIMIT at_most
                  FOR UPDATE SKIP LOCKED LOOP
        BEGIN
            IF naksha_is_staged(tbl) THEN
                EXECUTE format('DROP TABLE IF EXISTS %I.%I', current_schema(), tbl);
            END IF;
        EXCEPTION WHEN lock_not_available THEN
            CONTINUE;
        END;
        DELETE FROM naksha_staged WHERE name = tbl;
        dropped := dropped + 1;
    END LOOP;
    RETURN dropped;
END $$;

-- Deletes the records of jobs applied before then; they are not repeated so late.
CREATE OR REPLACE FUNCTION naksha_sweep_jobs(before_ms int8) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = ''
BEGIN ATOMIC
    SELECT naksha_mark_own();
    DELETE FROM naksha_kept WHERE kind = 'job' AND (value->>'at')::int8 < before_ms;
END;

-- ---- Filling a collection that is new or empty --------------------------------------------------

-- Moves the staged features of a leaf from some parts into the leaf table of a load (110). The rows
-- of the n-th part are numbered from `firsts[n]` on; there must be `counts[n]` of them.
CREATE OR REPLACE FUNCTION naksha_staged_fill(
    load int, leaf text, tables text[], firsts int8[], counts int8[], mark text, after_i text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    moved int8;
BEGIN
    FOR n IN 1..cardinality(tables) LOOP
        CONTINUE WHEN counts[n] = 0;
        EXECUTE format($sql$INSERT INTO %I (i, geo, jsondata)
            SELECT s.i, ST_Force3D(ST_SetSRID(s.geo, 4326)),
                   (s.head || ($2 || s.i || $3) || s.tail)::jsonb
              FROM (SELECT $1 - 1 + row_number() OVER () AS i, geo, head, tail FROM %I
                     WHERE leaf = $4) AS s$sql$, naksha_stage_name(load, 'p', leaf), tables[n])
          USING firsts[n], mark, after_i, ('x0' || leaf)::bit(8)::int::int2;
        GET DIAGNOSTICS moved = ROW_COUNT;
        IF moved <> counts[n] THEN
            PERFORM naksha_raise('N0011', format('The staged part %L has only %s of its %s '
                'features; stage it again', tables[n], moved, counts[n]));
        END IF;
    END LOOP;
END $$;

CREATE OR REPLACE FUNCTION naksha_raise_staged_twice(feature_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_raise('N0000', format('Feature %L is staged more than once; stage each id '
        'once', feature_id), jsonb_build_object('feature', feature_id, 'field', 'id'));
END $$;

-- Builds the indices of a filled leaf table. Returns the number of features, their area and their
-- tile cells.
CREATE OR REPLACE FUNCTION naksha_staged_index(
    load int, leaf text, points_only bool, OUT features int8, OUT area geometry,
    OUT cells int8[])
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    tbl   text := naksha_stage_name(load, 'p', leaf);
    twice text;
BEGIN
    PERFORM naksha_check_job(load, leaf), naksha_hold(tbl);
    BEGIN
        PERFORM naksha_create_indices(tbl, 'head', points_only);
    EXCEPTION WHEN unique_violation THEN
        EXECUTE format('SELECT jsondata->>''id'' FROM %I GROUP BY 1 HAVING count(*) > 1 '
                       'ORDER BY 1 LIMIT 1', tbl) INTO twice;
        PERFORM naksha_raise_staged_twice(twice);
    END;
    SELECT m.* INTO features, area, cells FROM naksha_measure(tbl) m;
END $$;

-- ---- Writing to a collection that has features --------------------------------------------------

-- All rows of some parts, as a subquery.
CREATE OR REPLACE FUNCTION naksha_staged_rows(tables text[]) RETURNS text
STABLE
RETURN (SELECT 'SELECT NULL::int2 AS leaf, NULL::int2 AS given, NULL::int8 AS lock, '
            'NULL::text COLLATE "C" AS id, NULL::geometry AS geo, NULL::text AS head, '
            'NULL::text AS tail WHERE false' || coalesce(string_agg(
            format(' UNION ALL SELECT leaf, given, lock, id, geo, head, tail FROM %I', t.name), ''
            ORDER BY t.name), '') FROM unnest(tables) AS t(name));

-- The content of a staged feature, and the namespace members that its client gave.
CREATE OR REPLACE FUNCTION naksha_staged_content(head text) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN (rtrim(head, ',') || '}}')::jsonb;

CREATE OR REPLACE FUNCTION naksha_staged_xyz(tail text) RETURNS jsonb
IMMUTABLE PARALLEL SAFE
RETURN ('{' || rtrim(tail, '}') || '}')::jsonb;

-- The number of rows for each of the 16 leaves.
CREATE OR REPLACE FUNCTION naksha_leaf_counts(leaves int2[]) RETURNS int[]
IMMUTABLE PARALLEL SAFE
RETURN (SELECT array_agg((SELECT count(*)::int FROM unnest(leaves) l WHERE l = n) ORDER BY n)
          FROM generate_series(0, 15) n);

-- Writes the staged features of some leaves, in batches limited in features and approximate bytes:
-- an array must be below 1 GiB, and one feature has up to 10 MiB. Returns for each batch how many
-- were created, updated and retained. Batches are fetched one by one; a loop over the query would
-- hold fifty of them. Large values are not read to determine their size.
CREATE OR REPLACE FUNCTION naksha_staged_put(
    collection_id text, mode text, tables text[], leaves int2[], at_most int, bytes_at_most int8)
RETURNS TABLE (action text, features int8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET work_mem = '64MB' AS $$
DECLARE
    batches refcursor;
    batch   naksha_staged_batch;
BEGIN
    OPEN batches NO SCROLL FOR EXECUTE format($sql$
        SELECT min(id) FILTER (WHERE id = previous),
               array_agg(leaf ORDER BY leaf, id), array_agg(id ORDER BY leaf, id),
               array_agg(naksha_staged_content(head) ORDER BY leaf, id),
               array_agg(ST_AsBinary(geo) ORDER BY leaf, id),
               array_agg(xyz->>'qrid' ORDER BY leaf, id),
               array_agg(CASE WHEN given & 1 <> 0 THEN xyz->'tags' END ORDER BY leaf, id),
               array_agg(CASE WHEN given & 2 <> 0 THEN coalesce(xyz->>'crid', '') END
                         ORDER BY leaf, id),
               array_agg(lock ORDER BY leaf, id)
          FROM (SELECT *, naksha_staged_xyz(tail) AS xyz, lag(id) OVER sorted AS previous,
                       (row_number() OVER sorted - 1) / $2 AS by_count,
                       sum(pg_column_size(head) + coalesce(pg_column_size(geo), 0))
                           OVER sorted / $3 AS by_size
                  FROM (%s) AS staged WHERE leaf = ANY($1)
                WINDOW sorted AS (ORDER BY leaf, id ROWS UNBOUNDED PRECEDING)) AS numbered
         GROUP BY by_count, by_size ORDER BY by_count, by_size$sql$,
        naksha_staged_rows(tables)) USING leaves, at_most, bytes_at_most;
    LOOP
        FETCH batches INTO batch;
        EXIT WHEN NOT FOUND;
        IF batch.twice IS NOT NULL THEN
            PERFORM naksha_raise_staged_twice(batch.twice);
        END IF;
        RETURN QUERY SELECT o.action, count(*) FROM naksha_write(
            collection_id, ARRAY[mode], naksha_leaf_counts(batch.leaves), batch.ids, batch.contents,
            batch.wkbs, batch.qrids, batch.tags, batch.crids, batch.locks) AS o GROUP BY o.action;
    END LOOP;
    CLOSE batches;
END $$;

-- The value of a document at a key, as an expression. Names are those of objects: `#>` would take
-- the name 0 for the first element of an array, too.
CREATE OR REPLACE FUNCTION naksha_staged_value(document text, key text[]) RETURNS text
STABLE
RETURN (SELECT document || string_agg(format('->%L::text', k.name), '' ORDER BY k.n)
          FROM unnest(key) WITH ORDINALITY AS k(name, n));

-- Condition for states of HEAD that are deleted unless they are staged: all of them, or those whose
-- value at the key is that of a staged feature.
CREATE OR REPLACE FUNCTION naksha_staged_where(tables text[], key text[]) RETURNS text
STABLE
RETURN CASE WHEN key IS NULL THEN 'true' ELSE
    format('(%1$s) IN (SELECT %2$s FROM (%3$s) AS k) AND (%1$s) <> ''null''',
           naksha_staged_value('jsondata', key),
           naksha_staged_value('naksha_staged_content(k.head)', key), naksha_staged_rows(tables))
    END;

-- Deletes the features that are not staged, as naksha_staged_where defines; returns their number.
-- The gate must be closed, otherwise others add features meanwhile.
CREATE OR REPLACE FUNCTION naksha_staged_delete(
    collection_id text, tables text[], key text[], at_most int) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET work_mem = '64MB' AS $$
DECLARE
    deleted int8 := 0;
    batch   naksha_staged_batch;
BEGIN
    FOR batch IN EXECUTE format($sql$
        SELECT NULL, array_agg(leaf ORDER BY leaf, id), array_agg(id ORDER BY leaf, id),
               NULL, NULL, NULL, NULL, NULL, NULL
          FROM (SELECT leaf, id, (row_number() OVER (ORDER BY leaf, id) - 1) / $1 AS batch
                  FROM (SELECT jsondata->>'id' COLLATE "C" AS id,
                               ('x0' || naksha_leaf(jsondata->>'id'))::bit(8)::int::int2 AS leaf
                          FROM %I WHERE %s) AS head
                 WHERE NOT EXISTS (SELECT FROM (%s) AS staged WHERE staged.id = head.id)) AS gone
         GROUP BY batch ORDER BY batch$sql$, collection_id, naksha_staged_where(tables, key),
        naksha_staged_rows(tables)) USING at_most LOOP
        PERFORM naksha_write(collection_id, '{delete}', naksha_leaf_counts(batch.leaves),
                             batch.ids);
        deleted := deleted + cardinality(batch.ids);
    END LOOP;
    RETURN deleted;
END $$;

-- On a branch, which is read in layers, the features to delete are found in three steps, in
-- batches. The first records the staged ids for the rest of the transaction, and their values at a
-- key, if there is one.
CREATE OR REPLACE FUNCTION naksha_staged_note(tables text[], key text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    CREATE TEMP TABLE naksha_noted (id text COLLATE "C" PRIMARY KEY) ON COMMIT DROP;
    CREATE TEMP TABLE naksha_noted_value (value jsonb NOT NULL) ON COMMIT DROP;
    CREATE TEMP TABLE naksha_absent (id text COLLATE "C" PRIMARY KEY) ON COMMIT DROP;
    EXECUTE format('INSERT INTO pg_temp.naksha_noted SELECT id FROM (%s) AS staged',
                   naksha_staged_rows(tables));
    IF key IS NOT NULL THEN
        EXECUTE format('INSERT INTO pg_temp.naksha_noted_value SELECT DISTINCT k.value '
                       'FROM (SELECT %s AS value FROM (%s) AS staged) AS k '
                       'WHERE k.value <> ''null''',
                       naksha_staged_value('naksha_staged_content(head)', key),
                       naksha_staged_rows(tables));
        -- A hash index: a value may be too large for a b-tree.
        CREATE INDEX ON pg_temp.naksha_noted_value USING hash (value);
    END IF;
    ANALYZE pg_temp.naksha_noted, pg_temp.naksha_noted_value;
END $$;

-- Records which of some features of the branch are to be deleted: they are not staged, and their
-- value at the key is staged, if values are given.
CREATE OR REPLACE FUNCTION naksha_staged_compare(ids text[], values_there jsonb[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format($sql$INSERT INTO pg_temp.naksha_absent
        SELECT f.id FROM unnest($1, $2) AS f(id, value)
         WHERE NOT EXISTS (SELECT FROM pg_temp.naksha_noted n WHERE n.id = f.id) AND %s$sql$,
        CASE WHEN values_there IS NULL THEN 'true' ELSE
            'EXISTS (SELECT FROM pg_temp.naksha_noted_value n WHERE n.value = f.value)' END)
      USING ids, values_there;
END $$;

-- A batch of the ids to be deleted, after an id.
CREATE OR REPLACE FUNCTION naksha_staged_absent(after text, at_most int) RETURNS SETOF text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT id FROM pg_temp.%I WHERE id > $1 ORDER BY id LIMIT $2',
                                'naksha_absent') USING after, at_most;
END $$;

-- Copies all rows of some parts into one table, if there are too many tables for one transaction.
CREATE OR REPLACE FUNCTION naksha_staged_gather(tbl text, tables text[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('INSERT INTO %I (leaf, given, lock, id, geo, head, tail) %s', tbl,
                   naksha_staged_rows(tables));
END $$;

SELECT naksha_guard('naksha_staged', 'INSERT OR UPDATE OR DELETE OR TRUNCATE',
                    'Use naksha_staged_release(job), as the library does');
