-- Conversion of an XYZ-Hub table (jsondata, geo, i, maybe deleted) into a collection, and back.

-- Whether the table has the column `deleted`; an error if a required column is missing.
CREATE OR REPLACE FUNCTION naksha_adopt_layout(source regclass) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    types   jsonb;
    missing text;
BEGIN
    SELECT jsonb_object_agg(attname, format_type(atttypid, NULL)) INTO types
      FROM pg_attribute WHERE attrelid = source AND attnum > 0 AND NOT attisdropped;
    SELECT string_agg(k || ' ' || v, ', ' ORDER BY k) INTO missing
      FROM (VALUES ('jsondata', 'jsonb'), ('geo', 'geometry'), ('i', 'bigint')) AS need(k, v)
     WHERE types->>k IS DISTINCT FROM v;
    IF missing IS NOT NULL OR NOT EXISTS (SELECT FROM pg_class WHERE oid = source
                                             AND relkind IN ('r', 'p')) THEN
        PERFORM naksha_raise('N0006', format('%s is not a table of XYZ-Hub: %s', source,
            coalesce('it lacks: ' || missing, 'it is not a table')), '{"field": "source"}');
    END IF;
    RETURN types->>'deleted' IS NOT DISTINCT FROM 'boolean';
END $$;

-- Renames the table if its name is needed for the collection's own tables. Sequence and table are
-- later found by their oid, so only the names change.
CREATE OR REPLACE FUNCTION naksha_adopt_set_aside(source regclass, collection_id text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    numbers text := pg_get_serial_sequence(source::text, 'i');
    taken   text;
BEGIN
    IF source = to_regclass(quote_ident(collection_id)) THEN
        EXECUTE format('ALTER TABLE %s RENAME TO %I', source, 'naksha_adopted_' || source::oid);
    END IF;
    IF to_regclass(numbers) = to_regclass(quote_ident(collection_id || '_i_seq')) THEN
        EXECUTE format('ALTER SEQUENCE %s RENAME TO %I', numbers,
                       'naksha_adopted_' || source::oid || '_i_seq');
    END IF;
    SELECT string_agg(c.relname, ', ') INTO taken FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relname IN (collection_id, collection_id || '_i_seq', collection_id || '_hst',
                         collection_id || '_del', collection_id || '_meta');
    IF taken IS NOT NULL AND NOT EXISTS (SELECT FROM naksha_collection WHERE id = collection_id)
    THEN
        PERFORM naksha_raise('N0001', format('Other tables already have the names that collection '
            '%L needs: %s', collection_id, taken),
                             jsonb_build_object('collection', collection_id, 'field', 'source'));
    END IF;
END $$;

-- Statement text that selects the rows in their adopted form: number (the first of duplicates keeps
-- it, unless it is one of the `used` first, which a former collection had), id without the
-- collection's prefix, geometry in the layout of HEAD.
CREATE OR REPLACE FUNCTION naksha_adopt_rows(
    source regclass, id_prefix text, has_deleted bool, used int8)
RETURNS text STABLE
RETURN format($sql$SELECT i, i BETWEEN %5$s + 1 AND 1099511627775
           AND row_number() OVER (PARTITION BY i ORDER BY ctid) = 1 AS keeps, geo AS source_geo,
       ST_Force3D(ST_SetSRID(geo, 4326)) AS geo, jsondata, naksha_xyz(jsondata) AS sent,
       CASE WHEN jsonb_typeof(jsondata->'id') = 'string' THEN
            CASE WHEN starts_with(jsondata->>'id', %1$L) THEN substr(jsondata->>'id', %2$s)
                 ELSE jsondata->>'id' END END AS id,
       %3$s AS dead
  FROM %4$s$sql$, id_prefix, coalesce(length(id_prefix), 0) + 1,
    CASE WHEN has_deleted THEN 'coalesce(deleted, false)' ELSE 'false' END, source, used);

-- Raises an error that names the row if a row cannot be a feature of this storage.
CREATE OR REPLACE FUNCTION naksha_adopt_check(c naksha_collection, rows text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    problem text;
    field   text;
    id      text;
BEGIN
    EXECUTE format($sql$SELECT concat('Row i = ', coalesce(i::text, 'null'), ' ', problem),
               CASE WHEN wrong_srid THEN 'geometry' ELSE 'id' END, id
          FROM (SELECT i, id, wrong_srid, CASE
                    WHEN coalesce(id, '') = '' THEN 'has no id (a string)'
                    WHEN octet_length(id) > 512 THEN 'has an id of more than 512 bytes'
                    WHEN count(*) OVER (PARTITION BY id) > 1 THEN 'shares its id with another row'
                    WHEN wrong_srid THEN 'has coordinates other than WGS 84 (SRID 4326)'
                    END AS problem
                  FROM (SELECT *, coalesce(ST_SRID(source_geo), 0) NOT IN (0, 4326) AS wrong_srid
                          FROM (%1$s) AS r) AS r) AS found
         WHERE problem IS NOT NULL ORDER BY i LIMIT 1$sql$, rows) INTO problem, field, id;
    IF problem IS NOT NULL THEN
        PERFORM naksha_raise('N0006', problem,
            jsonb_build_object('collection', c.id, 'field', field, 'feature', id));
    END IF;
    EXECUTE format('SELECT count(naksha_check_geo($1, id, geo)), '
                   'count(naksha_check_document($1, id, jsondata)) FROM (%s) AS r', rows) USING c;
END $$;

-- A time of the old namespace, otherwise the given one, which is now: no state is from later, so
-- that the day of a txn is never before the time of its states.
CREATE OR REPLACE FUNCTION naksha_adopt_ms(sent jsonb, key text, otherwise int8) RETURNS int8
IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN jsonb_typeof(sent->key) = 'number' AND (sent->>key)::numeric >= 0
                 AND (sent->>key)::numeric <= 8640000000000000
            THEN least(floor((sent->>key)::numeric)::int8, otherwise) ELSE otherwise END;

-- Statement text that writes all rows in one pass: live ones to HEAD, dead ones as tombstones.
-- $1 txn $2 GUID prefix $3 author $4 app id $5 now $6 wall clock
CREATE OR REPLACE FUNCTION naksha_adopt_sql(c naksha_collection, rows text, day text) RETURNS text
IMMUTABLE
RETURN format($sql$WITH numbered AS MATERIALIZED (
    SELECT CASE WHEN keeps THEN i ELSE nextval(%1$L) END AS i, geo, id, sent, dead,
           naksha_plain_content(jsonb_set(jsondata, '{id}', to_jsonb(id)),
               coalesce(ST_ZMin(geo) <> 0 OR ST_ZMax(geo) <> 0, false)) AS content
      FROM (%2$s) AS r
), states AS MATERIALIZED (
    SELECT i, geo, dead, naksha_with_xyz(content, naksha_make_xyz(
               CASE WHEN dead THEN 'DELETE' ELSE 'CREATE' END, 1, $3, $4, $2 || i, NULL, NULL, $1,
               naksha_adopt_ms(sent, 'createdAt', $5), naksha_adopt_ms(sent, 'updatedAt', $5),
               $6, $6, naksha_sent_tags(sent), sent->>'crid', naksha_qrid(geo))) AS jsondata
      FROM numbered
), live AS (
    INSERT INTO %3$I (i, geo, jsondata) SELECT i, geo, jsondata FROM states WHERE NOT dead
), tombs AS (
    INSERT INTO %4$I (i, geo, jsondata) SELECT i, geo, jsondata FROM states WHERE dead
)%5$s
SELECT count(*) FILTER (WHERE NOT dead) AS live, count(*) FILTER (WHERE dead) AS dead,
       ST_SetSRID(ST_Extent(geo), 4326) AS area,
       naksha_cover(array_agg(DISTINCT naksha_corners(box)) FILTER (WHERE box IS NOT NULL)) AS cells
  FROM (SELECT *, geo::box3d AS box FROM states OFFSET 0) AS shapes$sql$,
    format('%I', c.id || '_i_seq'), rows, c.id, c.id || '_del',
    CASE WHEN day IS NULL THEN '' ELSE format($sql$, backup AS (
    INSERT INTO %I (i, geo, jsondata)
    SELECT i, geo, naksha_closed(jsondata, $1) FROM states WHERE dead
)$sql$, day) END);

-- Drops the indices of the empty leaves of a new collection, and creates them again when the leaves
-- are full: filling first and indexing afterwards is several times faster.
CREATE OR REPLACE FUNCTION naksha_adopt_indices(c naksha_collection, put_back bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    leaf text;
    idx  regclass;
BEGIN
    FOR leaf IN SELECT c.id || '_p' || to_hex(n) FROM generate_series(0, 15) AS n LOOP
        IF put_back THEN
            PERFORM naksha_create_indices(leaf, 'head', c.points_only);
            CONTINUE;
        END IF;
        EXECUTE format('ALTER TABLE %I DROP CONSTRAINT %I', leaf, leaf || '_i');
        FOR idx IN SELECT indexrelid FROM pg_index
                    WHERE indrelid = to_regclass(quote_ident(leaf)) LOOP
            EXECUTE format('DROP INDEX %s', idx);
        END LOOP;
    END LOOP;
END $$;

-- Converts an XYZ-Hub table into a collection, in one transaction, and drops the table; the rows
-- keep tags, crid, times and their number `i`, and the sequence {collection}_i_seq continues the
-- old one. With {"keepSource": true} in the settings the table stays. Returns the numbers of live
-- and deleted features. The transaction number is drawn at the beginning, so publication waits for
-- all of it.
CREATE OR REPLACE FUNCTION naksha_adopt(
    source regclass, collection_id text, settings jsonb DEFAULT '{}', OUT live int8, OUT dead int8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    has_deleted bool := naksha_adopt_layout(source);
    old_numbers regclass;
    numbers     text := quote_ident(collection_id || '_i_seq');
    last_i      int8;
    c           naksha_collection;
    rows        text;
    area        geometry;
    cells       int8[];
BEGIN
    PERFORM naksha_mark_own();
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', source);
    old_numbers := pg_get_serial_sequence(source::text, 'i')::regclass;
    PERFORM naksha_adopt_set_aside(source, collection_id),
            naksha_collection_create(collection_id,
                                     settings - 'keepSource' || '{"partitions": 16}');
    SELECT * INTO c FROM naksha_collection WHERE id = collection_id;
    rows := naksha_adopt_rows(source, c.id_prefix, has_deleted,
                              coalesce(pg_sequence_last_value(numbers::regclass), 0));
    PERFORM naksha_adopt_check(c, rows);
    EXECUTE format('SELECT max(i) FROM %s WHERE i BETWEEN 1 AND 1099511627775', source) INTO last_i;
    last_i := greatest(last_i, pg_sequence_last_value(old_numbers),
                       pg_sequence_last_value(numbers::regclass));
    PERFORM setval(numbers, last_i) WHERE last_i > 0;
    PERFORM naksha_adopt_indices(c, false);
    EXECUTE naksha_adopt_sql(c, rows, CASE WHEN c.off_since IS NULL
            THEN naksha_ensure_day(c.id || '_hst', naksha_txn()) END) INTO live, dead, area, cells
      USING naksha_txn(), naksha_guid_prefix(naksha_storage_id(), c.id, naksha_txn()),
            coalesce(naksha_author(), c.author, naksha_app_id()), naksha_app_id(),
            naksha_epoch_ms(naksha_now()), naksha_clock_ms();
    PERFORM naksha_adopt_indices(c, true);
    IF live + dead > 0 THEN
        PERFORM naksha_tx_count(c, live, 0, dead, 0, area, cells);
    END IF;
    IF (settings->>'keepSource')::bool IS NOT TRUE THEN
        EXECUTE format('DROP TABLE %s', source);
    END IF;
END $$;

-- Refuses to lose data that the caller has not agreed to lose.
CREATE OR REPLACE FUNCTION naksha_release_check(
    c naksha_collection, target text, drop_history bool) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    past bool;
BEGIN
    PERFORM naksha_check_unguarded(c);
    IF to_regclass(target) <> to_regclass(quote_ident(c.id)) THEN
        PERFORM naksha_raise('N0001', format('The target %s already exists', target),
                             jsonb_build_object('collection', c.id, 'field', 'target'));
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I) OR EXISTS (SELECT FROM %I)', c.id || '_hst',
                   c.id || '_del') INTO past;
    IF past AND drop_history IS NOT TRUE THEN
        PERFORM naksha_raise('N0007', format('History and deleted features of %L would be lost',
            c.id), jsonb_build_object('collection', c.id, 'field', 'drop_history'),
            'Call naksha_release(collection, target, drop_history => true)');
    END IF;
END $$;

-- Converts the live features into a table in the layout of XYZ-Hub, whose `i` numbers itself, and
-- ends the collection. The target may name a schema; the collection's own name becomes free. 2D
-- features get the height 0 there, and a later adoption takes heights of 0 for 2D.
CREATE OR REPLACE FUNCTION naksha_release(
    collection_id text, target text, drop_history bool DEFAULT false) RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c      naksha_collection := naksha_open_alone(collection_id);
    parts  text[] := parse_ident(target);
    name   text := parts[cardinality(parts)];
    home   text := coalesce(parts[cardinality(parts) - 1], current_schema());
    given  text := 'naksha_released_' || c.number;
    last_i int8 := pg_sequence_last_value(quote_ident(collection_id || '_i_seq')::regclass);
    rows   int8;
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_release_check(c, target, drop_history);
    EXECUTE format('CREATE TABLE %I.%I (jsondata jsonb, geo geometry(GeometryZ, 4326), '
                   'i bigserial)', home, given);
    EXECUTE format('INSERT INTO %I.%I (jsondata, geo, i) SELECT naksha_json_out(jsondata), geo, i '
                   'FROM %I', home, given, c.id);
    GET DIAGNOSTICS rows = ROW_COUNT;
    PERFORM setval(format('%I.%I', home, given || '_i_seq'), last_i) WHERE last_i > 0;
    PERFORM naksha_tx_signal('MODIFY_COLLECTION', c.id), naksha_collection_destroy(c.id);
    EXECUTE format('ALTER TABLE %I.%I RENAME TO %I', home, given, name);
    EXECUTE format('ALTER SEQUENCE %I.%I RENAME TO %I', home, given || '_i_seq', name || '_i_seq');
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I.%I ((jsondata->>''id''))', 'idx_' || name || '_id',
                   home, name);
    EXECUTE format('CREATE UNIQUE INDEX %I ON %I.%I (i)', 'idx_' || name || '_serial', home, name);
    EXECUTE format('CREATE INDEX %I ON %I.%I USING gist (geo)', 'idx_' || name || '_geo', home,
                   name);
    RETURN rows;
END $$;
