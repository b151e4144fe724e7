-- Bulk load by hand (docs/storage.md): tables are filled without triggers, one for each leaf, and
-- attached in the transaction that is logged for them.

-- The document of a new feature in a table to be attached: the one that the trigger would have
-- built. `txn` is the number of the transaction that will attach it, which is passed to other
-- sessions.
CREATE OR REPLACE FUNCTION naksha_leaf_document(
    collection_id text, feature jsonb, geo geometry, i int8, txn int8) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    c      naksha_collection;
    sent   jsonb := naksha_xyz(feature);
    now_ms int8 := naksha_epoch_ms(naksha_now());
    app_id text := current_setting('naksha.app_id');
BEGIN
    SELECT * INTO c FROM naksha_collection n WHERE n.id = collection_id AND n.overlay = 0;
    RETURN naksha_with_xyz(naksha_plain_content(feature, coalesce(ST_NDims(geo) = 3, false)),
        naksha_make_xyz('CREATE', 1, coalesce(naksha_author(), c.author, app_id), app_id,
            naksha_guid(naksha_storage_id(), collection_id, txn, i), NULL, NULL, txn,
            now_ms, now_ms, now_ms, now_ms, naksha_sent_tags(sent), nullif(sent->>'crid', ''),
            naksha_qrid(geo)));
END $$;

-- The first row of a table that cannot be a new feature in this leaf: its `i`, its id and the
-- reason.
CREATE OR REPLACE FUNCTION naksha_leaf_problem(
    c naksha_collection, leaf text, source text, OUT row_i int8, OUT id text, OUT problem text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    last_i int8 := pg_sequence_last_value(to_regclass(naksha_numbers(c)));
    prefix text := naksha_guid_prefix(naksha_storage_id(), c.id, naksha_txn());
    keys   text[] := ARRAY(SELECT jsonb_object_keys(naksha_make_xyz(NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)));
BEGIN
    EXECUTE format($sql$SELECT f.i, f.id, f.problem FROM (
        SELECT s.i, s.jsondata->>'id' AS id, CASE
            WHEN coalesce(jsonb_typeof(s.jsondata->'id') <> 'string', true)
                 OR octet_length(s.jsondata->>'id') NOT BETWEEN 1 AND 512
            THEN 'has no id (a string of 1 to 512 bytes)'
            WHEN starts_with(s.jsondata->>'id', $1) THEN 'has an id with the prefix ' || $1
            WHEN naksha_leaf(s.jsondata->>'id') <> $2
            THEN 'belongs to leaf ' || naksha_leaf(s.jsondata->>'id')
            WHEN s.i NOT BETWEEN 1 AND $3 OR s.i IS NULL
            THEN 'has a number that was not drawn from the sequence of the collection'
            WHEN s.jsondata->>'type' IS DISTINCT FROM 'Feature'
                 OR coalesce(jsonb_typeof(s.jsondata->'properties') <> 'object', true)
                 OR s.jsondata ? 'geometry'
            THEN 'is not a feature without geometry, with type and properties'
            WHEN NOT coalesce(x.xyz ?& $6 AND x.xyz - $6 = '{}', false)
            THEN 'does not have exactly the members of a namespace'
            WHEN x.xyz->>'txn' <> $4::text OR x.xyz->>'txn_next' <> '0'
            THEN 'is not a state of transaction ' || $4
            WHEN x.xyz->>'action' <> 'CREATE' OR x.xyz->'version' <> '1'
                 OR x.xyz->>'puuid' IS NOT NULL
            THEN 'is not the first state of a feature'
            WHEN x.xyz->>'uuid' <> $5 || s.i THEN 'has a uuid other than ' || $5 || s.i
            WHEN x.xyz->>'appId' <> naksha_app_id() OR x.xyz->>'author' IS NULL
            THEN 'has another application id, or no author'
            WHEN jsonb_typeof(x.xyz->'createdAt') <> 'number'
                 OR jsonb_typeof(x.xyz->'updatedAt') <> 'number'
                 OR x.xyz->'tags' IS DISTINCT FROM naksha_sent_tags(x.xyz)
            THEN 'has times that are not numbers, or tags that are not strings'
            WHEN x.xyz->>'qrid' IS DISTINCT FROM naksha_qrid(s.geo)
                 OR x.xyz->>'mrid' IS DISTINCT FROM coalesce(x.xyz->>'crid', x.xyz->>'qrid')
            THEN 'has a qrid or mrid that does not match its geometry and crid'
            ELSE coalesce(naksha_json_problem(s.jsondata), naksha_geo_problem(s.geo))
            END AS problem
          FROM %I s, naksha_xyz(s.jsondata) AS x(xyz)) AS f
         WHERE f.problem IS NOT NULL ORDER BY f.i LIMIT 1$sql$, source)
      INTO row_i, id, problem
     USING c.id_prefix, leaf, coalesce(last_i, 0), naksha_txn(), prefix, keys;
END $$;

-- Raises an error that names the row if a row must not be attached.
CREATE OR REPLACE FUNCTION naksha_check_leaf(c naksha_collection, leaf text, source text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    detail jsonb := jsonb_build_object('collection', c.id, 'field', source);
    bad    record;
    twin   text;
BEGIN
    bad := naksha_leaf_problem(c, leaf, source);
    IF bad.problem IS NOT NULL THEN
        PERFORM naksha_raise('N0006', format('Row i = %s of %I: it %s', bad.row_i, source,
            bad.problem), detail || jsonb_build_object('feature', bad.id));
    END IF;
    EXECUTE format('SELECT format(''Row i = %%s has the number of another state'', s.i) '
        'FROM %I s WHERE s.i IN (SELECT i FROM %I UNION ALL SELECT i FROM %I UNION ALL '
        'SELECT i FROM %I) LIMIT 1', source, c.id, c.id || '_del', c.id || '_hst') INTO twin;
    IF twin IS NULL THEN
        EXECUTE format('SELECT format(''Feature %%L is deleted; purge it first'', '
            'd.jsondata->>''id'') FROM %I d JOIN %I s '
            'ON s.jsondata->>''id'' = d.jsondata->>''id'' LIMIT 1',
            c.id || '_del', source) INTO twin;
    END IF;
    IF twin IS NULL AND c.points_only THEN
        EXECUTE format('SELECT ''The collection takes points only'' FROM %I s '
            'WHERE GeometryType(s.geo) <> ''POINT'' LIMIT 1', source) INTO twin;
    END IF;
    IF twin IS NOT NULL THEN
        PERFORM naksha_raise('N0006', twin, detail);
    END IF;
END $$;

-- Refuses a table that cannot become a leaf, and a leaf that is not empty.
CREATE OR REPLACE FUNCTION naksha_check_leaf_table(c naksha_collection, leaf text, source text)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    detail  jsonb := jsonb_build_object('collection', c.id, 'field', source);
    part    text := c.id || '_p' || leaf;
    tbl     regclass := to_regclass(quote_ident(source));
    is_used bool;
BEGIN
    IF leaf !~ '^[0-9a-f]$' OR to_regclass(quote_ident(part)) IS NULL THEN
        PERFORM naksha_raise('N0006', format('%L is not a leaf', leaf), detail,
                             'A leaf is one of 0 to 9 and a to f');
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class k WHERE k.oid = tbl AND k.relkind = 'r'
                      AND NOT k.relispartition AND k.relpersistence = 'p'
                      AND k.relnamespace = quote_ident(current_schema())::regnamespace) THEN
        PERFORM naksha_raise('N0006', format('%I is not a plain table in the schema of the storage',
            source), detail);
    END IF;
    IF EXISTS (SELECT FROM pg_index x WHERE x.indrelid = tbl)
       OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = tbl)
       OR (SELECT array_agg((a.attname, a.atttypid, a.atttypmod, a.attnotnull) ORDER BY a.attnum)
             FROM pg_attribute a WHERE a.attrelid = tbl AND a.attnum > 0)
          IS DISTINCT FROM
          (SELECT array_agg((a.attname, a.atttypid, a.atttypmod, a.attnotnull) ORDER BY a.attnum)
             FROM pg_attribute a WHERE a.attnum > 0
              AND a.attrelid = to_regclass(quote_ident(part))) THEN
        PERFORM naksha_raise('N0006', format('%I must have the columns of %I, no index and no '
            'trigger', source, part), detail, format('CREATE TABLE %I (LIKE %I)', source, c.id));
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', part) INTO is_used;
    IF is_used THEN
        PERFORM naksha_raise('N0005', format('Leaf %s of collection %L has features', leaf, c.id),
            detail, 'Attach to an empty leaf, or write the features with naksha_upsert');
    END IF;
END $$;

-- Attaches a filled table as a leaf of a collection: checked, indexed, with triggers, and logged,
-- in the transaction whose number its rows have. A collection with one leaf grows first. Returns
-- the number of added features.
CREATE OR REPLACE FUNCTION naksha_attach_leaf(collection_id text, leaf text, source text)
RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT SET client_min_messages = 'warning' AS $$
DECLARE
    c        naksha_collection := naksha_open_alone(collection_id);
    part     text := collection_id || '_p' || leaf;
    features int8;
    area     geometry;
    cells    int8[];
BEGIN
    PERFORM naksha_check_unpublished(c.id), naksha_change_partitions(c, 16);
    IF to_regclass(quote_ident(source)) IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', source);
    END IF;
    PERFORM naksha_check_leaf_table(c, leaf, source), naksha_check_leaf(c, leaf, source);
    SELECT m.* INTO features, area, cells FROM naksha_measure(source) m;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', collection_id);
    EXECUTE format('DROP TABLE %I', part);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', source, part);
    EXECUTE format('ALTER TABLE %I SET (fillfactor = 90)', part);
    BEGIN
        PERFORM naksha_create_indices(part, 'head', c.points_only);
    EXCEPTION WHEN unique_violation THEN
        PERFORM naksha_raise('N0006', format('Table %I contains an id or a number more than once: '
            '%s', source, SQLERRM), jsonb_build_object('collection', c.id, 'field', source));
    END;
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES IN (%L%s)', collection_id, part,
                   leaf, CASE leaf WHEN '0' THEN ', NULL' ELSE '' END);
    PERFORM naksha_create_leaf_triggers(part, collection_id);
    IF features > 0 THEN
        PERFORM naksha_tx_count(c, features, 0, 0, 0, area, cells);
    END IF;
    RETURN features;
END $$;
