-- Create, update and upsert.

DO $$
BEGIN
    IF to_regtype('naksha_leaf_result') IS NULL THEN
        CREATE TYPE naksha_leaf_result AS (
            outcomes naksha_outcome[], created text[], updated int8, tombs int8, added int8,
            latest int8, area geometry, bad jsonb);
    END IF;
END $$;

-- Statement text for one leaf.
-- Tags and crid that are not given stay as they are; an empty crid takes it away.
-- $1 ids $2 contents $3 WKB $4 qrids $5 tags $6 crids $7 locks (the i that must be HEAD's)
-- $8 muuids $9 txn $10 GUID prefix $11 author $12 app id $13 now $14 wall clock
-- $15 mode $16 author of new features $17 return features
CREATE OR REPLACE FUNCTION naksha_put_sql(c naksha_collection, leaf text, day text) RETURNS text
IMMUTABLE
RETURN format($sql$WITH input AS (
    SELECT id, content, qrid, tags, crid, lock, muuid,
           ST_Force3D(ST_SetSRID(ST_GeomFromWKB(wkb), 4326)) AS geo
      FROM unnest($1::text[], $2::jsonb[], $3::bytea[], $4::text[], $5::jsonb[], $6::text[],
                  $7::int8[], $8::text[]) AS t(id, content, wkb, qrid, tags, crid, lock, muuid)
), old AS (
    SELECT jsondata->>'id' AS id, i, geo, jsondata, naksha_xyz(jsondata) AS xyz
      FROM %1$I WHERE jsondata->>'id' = ANY($1)
), tomb AS (
    SELECT jsondata->>'id' AS id, naksha_xyz(jsondata) AS xyz
      FROM %2$I WHERE jsondata->>'id' = ANY($1)
), judged AS (
    SELECT n.*, o.i AS old_i, o.geo AS old_geo, o.jsondata AS old_json, o.xyz AS old_xyz,
           t.xyz AS tomb_xyz,
           CASE WHEN n.lock IS NOT NULL AND n.lock IS DISTINCT FROM o.i THEN 'CONFLICT'
                WHEN o.i IS NULL AND $15 = 'update' THEN 'MISSING'
                WHEN o.i IS NULL THEN 'CREATED'
                WHEN $15 = 'create' THEN 'EXISTS'
                WHEN n.content = naksha_content(o.jsondata)
                     AND n.geo::bytea IS NOT DISTINCT FROM o.geo::bytea
                     AND coalesce(n.tags, o.xyz->'tags') = o.xyz->'tags'
                     AND nullif(coalesce(n.crid, o.xyz->>'crid'), '')
                         IS NOT DISTINCT FROM o.xyz->>'crid'
                     THEN 'RETAINED'
                ELSE 'UPDATED' END AS verdict
      FROM input n LEFT JOIN old o ON o.id = n.id LEFT JOIN tomb t ON t.id = n.id
), numbered AS (  -- Neighbours are written together: cheaper for the indices, and for readers.
    SELECT *, nextval(%3$L) AS i
      FROM (SELECT * FROM judged WHERE verdict IN ('CREATED', 'UPDATED') ORDER BY qrid) AS near
), states AS (
    SELECT id, i, geo, verdict, old_i, old_geo, old_json, old_xyz, tomb_xyz,
           naksha_with_xyz(content, CASE verdict
               WHEN 'UPDATED' THEN naksha_next_xyz(old_xyz, $10 || i, muuid, $9, $13, $14, $11, $12,
                   coalesce(tags, old_xyz->'tags'), nullif(coalesce(crid, old_xyz->>'crid'), ''),
                   qrid)
               ELSE naksha_make_xyz('CREATE', coalesce((tomb_xyz->>'version')::int8, 0) + 1, $16,
                                    $12, $10 || i, NULL, muuid, $9, $13, $13, $14, $14,
                                    tags, nullif(crid, ''), qrid) END) AS jsondata
      FROM numbered
)%4$s, changed AS (
    UPDATE %1$I AS head SET i = s.i, geo = s.geo, jsondata = s.jsondata
      FROM states s WHERE head.i = s.old_i RETURNING head.i
), added AS (
    INSERT INTO %1$I SELECT i, geo, jsondata FROM states WHERE old_i IS NULL
    ON CONFLICT DO NOTHING RETURNING i
), told AS (
    SELECT id, verdict, naksha_xyz(jsondata) AS xyz, geo, jsondata FROM states
    UNION ALL
    SELECT id, verdict, old_xyz, old_geo, old_json FROM judged WHERE verdict = 'RETAINED'
)
SELECT (SELECT array_agg((id, verdict, xyz->>'uuid', (xyz->>'version')::int8,
                CASE WHEN $17 THEN naksha_feature(geo, jsondata) END)::naksha_outcome) FROM told),
       array_agg(id) FILTER (WHERE old_i IS NULL),
       count(*) FILTER (WHERE old_i IS NOT NULL AND old_xyz->>'txn' <> $9::text),
       count(tomb_xyz), (SELECT count(*) FROM added),
       max(greatest((old_xyz->>'txn')::int8, (tomb_xyz->>'txn')::int8)),
       ST_SetSRID(ST_Collect(ST_Extent(geo)::geometry, ST_Extent(old_geo)::geometry), 4326),
       coalesce((SELECT jsonb_build_object('verdict', verdict, 'feature', id, 'head',
                   convert_from(naksha_feature(old_geo, old_json), 'UTF8')::jsonb)
          FROM judged WHERE verdict IN ('CONFLICT', 'MISSING', 'EXISTS') ORDER BY id LIMIT 1),
          CASE WHEN (SELECT count(*) FROM changed) <> count(old_i)
               THEN '{"verdict": "OVERTAKEN"}'::jsonb END)
  FROM states$sql$,
    leaf, c.id || '_del', format('%I', c.id || '_i_seq'),
    CASE WHEN day IS NULL THEN '' ELSE format($sql$, kept AS (
    INSERT INTO %I SELECT old_i, old_geo, naksha_closed(old_json, $9) FROM states
     WHERE old_i IS NOT NULL
)$sql$, day) END);

-- Says what a verdict means.
CREATE OR REPLACE FUNCTION naksha_raise_verdict(c naksha_collection, bad jsonb) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    detail jsonb := bad - 'verdict' || jsonb_build_object('collection', c.id);
BEGIN
    CASE bad->>'verdict'
        WHEN 'MISSING' THEN PERFORM naksha_raise('N0004', 'There is no such feature', detail);
        WHEN 'EXISTS' THEN PERFORM naksha_raise('N0003', 'The feature exists already', detail);
        WHEN 'LIVE' THEN PERFORM naksha_raise('N0005', 'The feature is not deleted', detail);
        -- It was created after we looked for rows to lock, and is being changed already.
        WHEN 'OVERTAKEN' THEN PERFORM naksha_check_order(9223372036854775807, c.id);
        ELSE PERFORM naksha_raise('N0005', 'The feature was changed since it was read',
                                  detail || '{"field": "uuid"}');
    END CASE;
END $$;

-- After one leaf is written: refuse, check the order with a new snapshot, count.
CREATE OR REPLACE FUNCTION naksha_put_done(c naksha_collection, r naksha_leaf_result)
RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    created int8 := coalesce(cardinality(r.created), 0);
    gone    int8 := 0;
    buried  int8;
BEGIN
    IF r.bad IS NOT NULL THEN
        PERFORM naksha_raise_verdict(c, r.bad);
    END IF;
    IF created > 0 THEN
        SELECT u.removed, u.latest INTO gone, buried
          FROM naksha_untomb(c, naksha_txn(), r.created) u;
    END IF;
    -- Somebody created, or created and deleted, the same feature while we were writing.
    IF r.added <> created OR gone <> r.tombs THEN
        PERFORM naksha_check_order(9223372036854775807, c.id);
    END IF;
    PERFORM naksha_check_order(greatest(r.latest, buried, c.txn, CASE WHEN created > 0
                                        THEN naksha_last_purge(c.id, naksha_txn()) END), c.id);
    IF created > 0 OR cardinality(r.outcomes) > 0 AND r.area IS NOT NULL OR r.updated > 0 THEN
        PERFORM naksha_tx_count(c, created, r.updated, 0, 0, r.area);
    END IF;
END $$;

CREATE OR REPLACE FUNCTION naksha_put(
    collection_id text, mode text, counts int[], ids text[], contents jsonb[], wkbs bytea[],
    qrids text[], tags jsonb[], crids text[], locks int8[], muuids text[], want bool DEFAULT false)
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
DECLARE
    c       naksha_collection := naksha_open(collection_id);
    txn     int8;
    day     text;
    lo      int := 1;
    hi      int;
    r       naksha_leaf_result;
BEGIN
    PERFORM naksha_lock_rows(c, ids, counts);
    txn := naksha_txn();
    IF c.off_since IS NULL THEN
        day := naksha_ensure_day(c.id || '_hst', txn);
    END IF;
    FOR leaf IN 1..16 LOOP
        CONTINUE WHEN counts[leaf] = 0;
        hi := lo + counts[leaf] - 1;
        EXECUTE naksha_put_sql(c, c.id || '_p' || to_hex(leaf - 1), day) INTO r
          USING ids[lo:hi], contents[lo:hi], wkbs[lo:hi], qrids[lo:hi], tags[lo:hi], crids[lo:hi],
                locks[lo:hi], muuids[lo:hi], txn,
                naksha_guid_prefix(naksha_storage_id(), c.id, txn), naksha_author(),
                naksha_app_id(), naksha_epoch_ms(naksha_now()), naksha_clock_ms(), mode,
                coalesce(naksha_author(), c.author, naksha_app_id()), want;
        PERFORM naksha_put_done(c, r);
        RETURN QUERY SELECT * FROM unnest(r.outcomes);
        lo := hi + 1;
    END LOOP;
END $$;

-- One feature from plain SQL, where INSERT … ON CONFLICT cannot be used: GeoJSON in, with its
-- geometry inside or given apart; a prefix of the collection is cut from the id.
CREATE OR REPLACE FUNCTION naksha_upsert(
    collection_id text, feature jsonb, geo geometry DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c      naksha_collection := naksha_open(collection_id);
    shape  geometry := coalesce(geo, ST_GeomFromGeoJSON(nullif(feature->'geometry', 'null')));
    id     text := feature->>'id';
    sent   jsonb := naksha_xyz(feature);
    result naksha_outcome;
BEGIN
    IF starts_with(id, c.id_prefix) THEN
        id := substr(id, length(c.id_prefix) + 1);
        feature := jsonb_set(feature, '{id}', to_jsonb(id));
    END IF;
    PERFORM naksha_check_id(c, feature), naksha_check_geo(c, id, shape);
    SELECT * INTO result FROM naksha_put(collection_id, 'upsert',
        (naksha_batch(ARRAY[id])).counts, ARRAY[id],
        ARRAY[naksha_plain_content(feature, ST_NDims(shape) = 3)],
        ARRAY[ST_AsBinary(shape)], ARRAY[naksha_qrid(shape)], ARRAY[naksha_new_tags(sent)],
        ARRAY[naksha_new_crid(sent)], ARRAY[NULL]::int8[], ARRAY[NULL]::text[]);
    RETURN result.uuid;
END $$;
