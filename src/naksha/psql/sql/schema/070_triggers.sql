-- Triggers that maintain namespace, history, deletion table and log for plain SQL on HEAD: a row
-- trigger before, statement triggers with transition tables after. The library's own functions
-- (080) do the same work set-based; triggers ignore their statements (naksha_trigger_when).

CREATE OR REPLACE FUNCTION naksha_check_id(c naksha_collection, jsondata jsonb) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    feature_id text := jsondata->>'id';
    detail     jsonb := jsonb_build_object('collection', naksha_name(c), 'feature', feature_id,
                                           'field', 'id');
BEGIN
    IF coalesce(feature_id, '') = '' OR jsonb_typeof(jsondata->'id') <> 'string' THEN
        PERFORM naksha_raise('N0006', 'A feature must have an id (a string) before it is inserted',
                             detail, 'jsondata must be an object with a member "id"');
    END IF;
    IF octet_length(feature_id) > 512 THEN
        PERFORM naksha_raise('N0006', format('The feature id that begins with %L has %s bytes; '
            'the maximum is 512', left(feature_id, 64), octet_length(feature_id)),
                             detail || jsonb_build_object('feature', left(feature_id, 64)));
    END IF;
    IF starts_with(feature_id, c.id_prefix) THEN
        PERFORM naksha_raise('N0006', format('The id %L has the prefix %L of the collection, which '
            'ids are stored without', left(feature_id, 64), c.id_prefix), detail,
            'Remove the prefix, or use naksha_upsert');
    END IF;
    RETURN feature_id;
END $$;

-- Normalizes `properties` to an object and sets the 3D mark.
CREATE OR REPLACE FUNCTION naksha_plain_content(jsondata jsonb, three_d bool) RETURNS jsonb
STABLE
RETURN (jsondata - ARRAY['geometry', 'naksha:3d', '@ns:naksha:damaged'])
    || jsonb_build_object('type', 'Feature', 'properties',
        CASE jsonb_typeof(jsondata->'properties') WHEN 'object'
             THEN (jsondata->'properties') - '@ns:com:here:xyz' ELSE '{}' END)
    || CASE WHEN three_d THEN '{"naksha:3d": true}'::jsonb ELSE '{}' END;

CREATE OR REPLACE FUNCTION naksha_clock_ms() RETURNS int8
VOLATILE
RETURN naksha_epoch_ms(clock_timestamp());

-- Name of the setting that counts the rows which a statement has inserted so far, as text.
CREATE OR REPLACE FUNCTION naksha_brought_var(c naksha_collection) RETURNS text
STABLE
RETURN naksha_var('brought_' || c.number || '_' || pg_trigger_depth());

-- ON CONFLICT skips existing features, or updates a row that was checked as an insert. Triggers are
-- not told about it, but fewer rows arrive in the table than were inserted. (A lookup of each id
-- beforehand would cost a third more, and miss rows that others are about to commit.)
CREATE OR REPLACE FUNCTION naksha_check_arrived(c naksha_collection, arrived int8) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    name    text := naksha_brought_var(c);
    skipped int8 := coalesce(nullif(current_setting(name, true), ''), '0')::int8 - arrived;
BEGIN
    IF skipped > 0 THEN
        PERFORM naksha_raise('N0008', format('ON CONFLICT is not allowed, and %s of the inserted '
            'features already exist', skipped),
            jsonb_build_object('collection', c.id),
            'Use naksha_upsert, which updates existing features');
    END IF;
    PERFORM set_config(name, '0', true);
END $$;

-- The collection that plain SQL writes to. Refused on a branch, whose states are in other tables.
CREATE OR REPLACE FUNCTION naksha_open_plain(collection_id text) RETURNS naksha_collection
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF naksha_top_overlay() <> 0 THEN
        PERFORM naksha_raise('N0009', 'Tables cannot be written to directly in a transaction on a '
            'branch', jsonb_build_object('collection', collection_id),
            'Write with naksha_upsert, naksha_restore or naksha_purge, or leave the branch');
    END IF;
    RETURN naksha_open_main(collection_id);
END $$;

-- The `i` that HEAD must have for a writer that read this state; null for state ids of other
-- collections, storages or systems. Both forms are accepted: the GUID, whose month and day may be
-- padded, and the 128 bits, in which collection and storage are numbers.
CREATE OR REPLACE FUNCTION naksha_lock_of(c naksha_collection, state_id text) RETURNS int8
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    name   text := naksha_name(c);
    bits   text[] := regexp_match(replace(lower(state_id), '-', ''),
        '^([0-9a-f]{5})([0-9a-f]{7})4([0-9a-f]{3})[89ab][0-9a-f]{4}[19]([0-9a-f]{10})$');
    known  record;
    prefix text;
    found  int8;
BEGIN
    FOR known IN SELECT * FROM naksha_storage_ids(name) LOOP
        prefix := known.id || ':' || name || ':';
        IF starts_with(state_id, prefix) THEN
            found := substring(substr(state_id, length(prefix) + 1)
                               FROM '^\d{1,4}:\d{1,2}:\d{1,2}:(\d{1,18})$')::int8;
        ELSIF naksha_hex_int(bits[4]) = known.number AND naksha_hex_int(bits[1]) = (
                  SELECT n.number FROM naksha_collection n WHERE n.id = name) THEN
            found := naksha_hex_int(bits[2] || bits[3]);
        ELSE
            CONTINUE;
        END IF;
        IF found BETWEEN known.first_i AND known.last_i THEN
            RETURN found;
        END IF;
    END LOOP;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION naksha_before_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c        naksha_collection := naksha_open_plain(TG_ARGV[0]);
    id       text := naksha_check_id(c, NEW.jsondata);
    txn      int8 := naksha_txn();
    now_ms   int8 := naksha_epoch_ms(naksha_now());
    real_ms  int8 := naksha_clock_ms();
    sent     jsonb := naksha_xyz(NEW.jsondata);
    version  int8;
    app_id   text := naksha_app_id();
    brought  text := naksha_brought_var(c);
    shape    record;
BEGIN
    shape := naksha_shape(c, id, NEW.jsondata, NEW.geo, NULL, NULL);
    NEW.geo := shape.geo;
    PERFORM naksha_check_geo(c, id, NEW.geo), naksha_check_document(c, id, NEW.jsondata),
            set_config(brought, (coalesce(nullif(current_setting(brought, true), ''), '0')::int8
                                 + 1)::text, true);
    version := naksha_tomb_version(c, id);
    NEW.i := nextval(format('%I', c.id || '_i_seq'));
    NEW.jsondata := naksha_with_xyz(
        naksha_plain_content(NEW.jsondata, shape.three_d),
        naksha_make_xyz('CREATE', coalesce(version, 0) + 1,
            coalesce(naksha_author(), c.author, app_id), app_id,
            naksha_guid(naksha_storage_id(), c.id, txn, NEW.i), NULL, NULL, txn,
            now_ms, now_ms, real_ms, real_ms, naksha_sent_tags(sent),
            nullif(sent->>'crid', ''), naksha_qrid(NEW.geo)));
    RETURN NEW;
END $$;

-- Not a single-expression function, whose plan would be made at each call.
CREATE OR REPLACE FUNCTION naksha_storage_id() RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN (SELECT s.id FROM naksha_storage s);
END $$;

-- Tags as sent by a client: an array of strings; anything else counts as no tags.
CREATE OR REPLACE FUNCTION naksha_sent_tags(xyz jsonb) RETURNS jsonb
IMMUTABLE
RETURN CASE WHEN jsonb_typeof(xyz->'tags') = 'array'
                 AND NOT xyz->'tags' @? '$[*] ? (@.type() != "string")'
            THEN xyz->'tags' ELSE '[]' END;

-- The tags set by an update: null if they are absent or null, and so stay unchanged.
CREATE OR REPLACE FUNCTION naksha_new_tags(xyz jsonb) RETURNS jsonb
IMMUTABLE
RETURN CASE WHEN jsonb_typeof(xyz->'tags') <> 'null' THEN naksha_sent_tags(xyz) END;

-- The crid set by an update: null if it stays unchanged, empty if it is removed.
CREATE OR REPLACE FUNCTION naksha_new_crid(xyz jsonb) RETURNS text
IMMUTABLE
RETURN CASE WHEN jsonb_typeof(xyz->'crid') = 'null' THEN '' ELSE xyz->>'crid' END;

-- The namespace of the state that follows `old`. A state overwritten inside its own transaction
-- leaves no trace in the chain: its successor takes its place.
CREATE OR REPLACE FUNCTION naksha_next_xyz(
    old_xyz jsonb, uuid text, muuid text, new_txn int8, now_ms int8, real_ms int8,
    author text, app_id text, tags jsonb, crid text, qrid text) RETURNS jsonb
STABLE PARALLEL SAFE
RETURN naksha_make_xyz(
    CASE WHEN (old_xyz->>'txn')::int8 = new_txn THEN old_xyz->>'action' ELSE 'UPDATE' END,
    (old_xyz->>'version')::int8 + CASE WHEN (old_xyz->>'txn')::int8 = new_txn THEN 0 ELSE 1 END,
    coalesce(author, old_xyz->>'author'), app_id, uuid,
    CASE WHEN (old_xyz->>'txn')::int8 = new_txn THEN old_xyz->>'puuid' ELSE old_xyz->>'uuid' END,
    muuid, new_txn, (old_xyz->>'createdAt')::int8, now_ms, (old_xyz->>'rtcts')::int8, real_ms,
    tags, crid, qrid);

CREATE OR REPLACE FUNCTION naksha_before_update() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c       naksha_collection := naksha_open_plain(TG_ARGV[0]);
    id      text := OLD.jsondata->>'id';
    txn     int8 := naksha_txn();
    old_xyz jsonb := naksha_xyz(OLD.jsondata);
    sent    jsonb := naksha_xyz(NEW.jsondata);
    content jsonb;
    tags    jsonb := coalesce(naksha_new_tags(sent), old_xyz->'tags');
    crid    text := nullif(coalesce(naksha_new_crid(sent), old_xyz->>'crid'), '');
    shape   record;
BEGIN
    IF NEW.jsondata->'id' IS DISTINCT FROM OLD.jsondata->'id' THEN
        PERFORM naksha_raise('N0006', format('The id of feature %L cannot be changed',
            left(id, 64)), jsonb_build_object('collection', c.id, 'feature', id, 'field', 'id'),
            'Insert a feature with the new id and delete this one');
    END IF;
    -- ON CONFLICT passes the row that was just prepared for the insert, and is refused in the end.
    IF sent->>'uuid' <> old_xyz->>'uuid' AND naksha_lock_of(c, sent->>'uuid') <> OLD.i
       AND NOT (sent->>'txn' = txn::text AND naksha_lock_of(c, sent->>'uuid') > OLD.i) THEN
        PERFORM naksha_raise_verdict(c, jsonb_build_object('feature', id, 'head',
            convert_from(naksha_feature(OLD.geo, OLD.jsondata), 'UTF8')::jsonb));
    END IF;
    shape := naksha_shape(c, id, NEW.jsondata, NEW.geo, OLD.geo, OLD.jsondata);
    NEW.geo := shape.geo;
    IF NEW.geo::bytea IS DISTINCT FROM OLD.geo::bytea THEN
        PERFORM naksha_check_geo(c, id, NEW.geo);
    END IF;
    PERFORM naksha_check_document(c, id, NEW.jsondata);
    content := naksha_plain_content(NEW.jsondata, shape.three_d);
    IF content = naksha_content(OLD.jsondata) AND NEW.geo::bytea IS NOT DISTINCT FROM OLD.geo::bytea
       AND tags = old_xyz->'tags'
       AND crid IS NOT DISTINCT FROM old_xyz->>'crid' THEN
        RETURN NULL;
    END IF;
    NEW.i := nextval(format('%I', c.id || '_i_seq'));
    NEW.jsondata := naksha_with_xyz(content, naksha_next_xyz(
        old_xyz, naksha_guid(naksha_storage_id(), c.id, txn, NEW.i), NULL, txn,
        naksha_epoch_ms(naksha_now()), naksha_clock_ms(), naksha_author(), naksha_app_id(),
        tags, crid, naksha_qrid(NEW.geo)));
    RETURN NEW;
END $$;

-- Log and order after plain SQL: `latest` is the latest transaction among the states replaced.
CREATE OR REPLACE FUNCTION naksha_after_write(
    c naksha_collection, latest int8, created int8, updated int8, deleted int8, area geometry,
    cells int8[] DEFAULT '{1}') RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_check_order(greatest(latest, c.txn), c.id);
    PERFORM naksha_tx_count(c, created, updated, deleted, 0, area, cells);
END $$;

-- The row trigger reads tombstones without a lock, because a row that waits for the index must not
-- hold one. If another session deleted or purged the same feature since then, the version is wrong.
CREATE OR REPLACE FUNCTION naksha_check_tombs(c naksha_collection, ids text[], versions int8[])
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET enable_seqscan = off SET plan_cache_mode = force_generic_plan
SET array_nulls = on AS $$
DECLARE
    wrong_id  text;
    wrong_txn int8;
    statement text := format(
        'WITH tomb AS (SELECT jsondata->>''id'' AS id, naksha_xyz(jsondata) AS xyz FROM %I '
        'WHERE jsondata->>''id'' = ANY($1) ORDER BY jsondata->>''id'' USING ~<~ FOR UPDATE) '
        'SELECT n.id, (t.xyz->>''txn'')::int8 AS txn FROM unnest($1, $2) AS n(id, version) '
        'LEFT JOIN tomb t ON t.id = n.id '
        'WHERE n.version <> coalesce((t.xyz->>''version'')::int8, 0) + 1 LIMIT 1', c.id || '_del');
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE CASE WHEN cardinality(ids) > 50 THEN statement
                 ELSE naksha_planned('text[], int8[]', statement)
                      || format('(%L, %L)', ids, versions) END
       INTO wrong_id, wrong_txn USING ids, versions;
    IF wrong_txn = naksha_txn() THEN
        PERFORM naksha_raise('N0008', 'One statement cannot delete and insert the same feature',
            jsonb_build_object('collection', c.id, 'feature', wrong_id),
            'Use UPDATE, or two statements');
    ELSIF wrong_id IS NOT NULL THEN
        PERFORM naksha_check_order(9223372036854775807, c.id);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_after_insert() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c     naksha_collection := naksha_open_plain(TG_ARGV[0]);
    n     int8;
    area  geometry;
    latest int8;
    corners int8[];
BEGIN
    PERFORM naksha_mark_own();
    SELECT count(*), ST_SetSRID(ST_Extent(geo), 4326),
           array_agg(DISTINCT naksha_corners(box)) FILTER (WHERE box IS NOT NULL)
      INTO n, area, corners FROM (SELECT geo, geo::box3d AS box FROM new_rows OFFSET 0) AS made;
    PERFORM naksha_check_arrived(c, n);
    IF n > 0 THEN
        PERFORM naksha_check_tombs(c, array_agg(jsondata->>'id'),
                                   array_agg((naksha_xyz(jsondata)->>'version')::int8))
           FROM new_rows;
        -- Features without a tombstone need no history, whose partition would have to be created.
        SELECT u.latest INTO latest FROM naksha_untomb(c, naksha_txn(), (
            SELECT array_agg(jsondata->>'id') FROM new_rows
             WHERE (naksha_xyz(jsondata)->>'version')::int8 > 1)) AS u;
        latest := greatest(latest, naksha_last_purge(c, naksha_txn()));
        PERFORM naksha_after_write(c, latest, n, 0, 0, area, naksha_cover(corners));
    END IF;
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION naksha_after_update() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c     naksha_collection := naksha_open_plain(TG_ARGV[0]);
    txn   int8;
    day   text;
    n     int8;
    area  geometry;
    latest int8;
    corners int8[];
BEGIN
    PERFORM naksha_mark_own();
    IF NOT EXISTS (SELECT FROM new_rows) THEN
        RETURN NULL;
    END IF;
    txn := naksha_txn();
    SELECT ST_SetSRID(ST_Extent(geo), 4326),
           array_agg(DISTINCT naksha_corners(box)) FILTER (WHERE box IS NOT NULL)
      INTO area, corners
      FROM (SELECT geo, geo::box3d AS box FROM old_rows UNION ALL
            SELECT geo, geo::box3d FROM new_rows OFFSET 0) AS both_sides;
    SELECT count(*) FILTER (WHERE naksha_xyz_txn(jsondata) <> txn), max(naksha_xyz_txn(jsondata))
      INTO n, latest FROM old_rows;
    day := naksha_history_day(c, txn);
    IF day IS NOT NULL THEN
        EXECUTE format('INSERT INTO %I SELECT i, geo, naksha_closed(jsondata, $1) FROM old_rows',
                       day) USING txn;
    END IF;
    PERFORM naksha_after_write(c, latest, 0, n, 0, area, naksha_cover(corners));
    RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION naksha_after_delete() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c     naksha_collection := naksha_open_plain(TG_ARGV[0]);
    txn   int8;
    n     int8;
    area  geometry;
    latest int8;
    corners int8[];
BEGIN
    PERFORM naksha_mark_own();
    SELECT count(*), ST_SetSRID(ST_Extent(geo), 4326), max(naksha_xyz_txn(jsondata)),
           array_agg(DISTINCT naksha_corners(box)) FILTER (WHERE box IS NOT NULL)
      INTO n, area, latest, corners
      FROM (SELECT geo, jsondata, geo::box3d AS box FROM old_rows OFFSET 0) AS gone;
    IF n > 0 THEN
        txn := naksha_txn();
        EXECUTE 'WITH gone AS (SELECT jsondata->>''id'' AS id, i, geo, jsondata, '
                'naksha_xyz(jsondata) AS xyz FROM old_rows)'
             || naksha_tombs_sql(c, naksha_history_day(c, txn), '''{}''::jsonb')
             || ' SELECT FROM tombs'
          USING txn, naksha_guid_prefix(naksha_storage_id(), c.id, txn), naksha_author(),
                naksha_app_id(), naksha_epoch_ms(naksha_now()), naksha_clock_ms();
        PERFORM naksha_after_write(c, latest, 0, 0, n, area, naksha_cover(corners));
    END IF;
    RETURN NULL;
END $$;

-- Creates a trigger that ignores the library's own functions. `timing` is before or after, `op`
-- insert, update or delete; the trigger is named after its function.
CREATE OR REPLACE FUNCTION naksha_create_trigger(
    tbl text, timing text, op text, scope text, collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER naksha_%1$s_%2$s %1$s %2$s ON %3$I %4$s '
        'WHEN (%6$s) EXECUTE FUNCTION naksha_%1$s_%2$s(%5$L)', timing, op, tbl, scope,
        collection_id, naksha_trigger_when());
END $$;

-- Row triggers are cloned onto the leaves by PostgreSQL; statement triggers are not.
CREATE OR REPLACE FUNCTION naksha_create_leaf_triggers(tbl text, collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_create_trigger(tbl, 'after', op,
                                  'REFERENCING ' || tables || ' FOR EACH STATEMENT', collection_id)
       FROM (VALUES ('insert', 'NEW TABLE AS new_rows'),
                    ('update', 'OLD TABLE AS old_rows NEW TABLE AS new_rows'),
                    ('delete', 'OLD TABLE AS old_rows')) AS t(op, tables);
    PERFORM naksha_guard(tbl, 'TRUNCATE');
END $$;

CREATE OR REPLACE FUNCTION naksha_create_triggers(collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM naksha_create_trigger(collection_id, 'before', 'insert', 'FOR EACH ROW', collection_id),
            naksha_create_trigger(collection_id, 'before', 'update', 'FOR EACH ROW', collection_id);
    PERFORM naksha_create_leaf_triggers(tbl, collection_id)
       FROM (SELECT collection_id UNION ALL
             SELECT collection_id || '_p' || to_hex(n) FROM generate_series(0, 15) n) AS t(tbl)
      WHERE to_regclass(quote_ident(tbl)) IS NOT NULL;
END $$;
