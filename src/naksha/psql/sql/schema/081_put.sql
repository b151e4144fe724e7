-- Create, update and upsert.

-- Statement text for one leaf; its parameters are documented at naksha_write. Tags and crid that
-- are not given stay unchanged; an empty crid removes it. New content may have a version in its
-- namespace, which the feature had elsewhere: its own version continues after that one.
CREATE OR REPLACE FUNCTION naksha_put_sql(c naksha_collection, leaf text, day text) RETURNS text
STABLE
RETURN format($sql$WITH input AS (
    SELECT id, content, qrid, tags, crid, lock, muuid,
           ST_Force3D(ST_SetSRID(ST_GeomFromWKB(wkb), 4326)) AS geo
      FROM unnest($7::text[], $8::jsonb[], $9::bytea[], $10::text[], $11::jsonb[], $12::text[],
                  $13::int8[], $14::text[]) AS t(id, content, wkb, qrid, tags, crid, lock, muuid)
), old AS (
    SELECT jsondata->>'id' AS id, i, geo, jsondata, naksha_xyz(jsondata) AS xyz
      FROM %1$I WHERE jsondata->>'id' = ANY($7)
), tomb AS (
    SELECT jsondata->>'id' AS id, i, naksha_xyz(jsondata) AS xyz
      FROM %2$I WHERE jsondata->>'id' = ANY($7)
), judged AS (
    SELECT n.*, o.i AS old_i, o.geo AS old_geo, o.jsondata AS old_json, o.xyz AS old_xyz,
           t.i AS tomb_i, t.xyz AS tomb_xyz,
           CASE WHEN n.lock IS NOT NULL AND n.lock IS DISTINCT FROM o.i THEN 'CONFLICT'
                WHEN o.i IS NULL AND $15 = 'update' THEN 'MISSING'
                WHEN o.i IS NULL THEN 'CREATED'
                WHEN $15 = 'create' THEN 'EXISTS'
                -- The content comes last: to compare it, a document is built.
                WHEN n.geo::bytea IS NOT DISTINCT FROM o.geo::bytea
                     AND coalesce(n.tags, o.xyz->'tags') = o.xyz->'tags'
                     AND nullif(coalesce(n.crid, o.xyz->>'crid'), '')
                         IS NOT DISTINCT FROM o.xyz->>'crid'
                     AND n.content = naksha_content(o.jsondata)
                     THEN 'RETAINED'
                ELSE 'UPDATED' END AS verdict
      FROM input n LEFT JOIN old o ON o.id = n.id LEFT JOIN tomb t ON t.id = n.id
), numbered AS (  -- Neighbours are written together: cheaper for the indices, and for readers.
    SELECT *, nextval(%3$L) AS i
      FROM (SELECT * FROM judged WHERE verdict IN ('CREATED', 'UPDATED')
             ORDER BY qrid COLLATE "C") AS near
), states AS (
    SELECT id, i, geo, verdict, old_i, old_geo, old_json, old_xyz, tomb_i, tomb_xyz,
           naksha_with_xyz(content, CASE verdict
               WHEN 'UPDATED' THEN naksha_next_xyz(old_xyz, $2 || i, muuid, $1, $5, $6, $3, $4,
                   coalesce(tags, old_xyz->'tags'), nullif(coalesce(crid, old_xyz->>'crid'), ''),
                   qrid)
               ELSE naksha_make_xyz('CREATE', coalesce((tomb_xyz->>'version')::int8, 0)
                                    + coalesce((naksha_xyz(content)->>'version')::int8, 0) + 1, $16,
                                    $4, $2 || i, NULL, muuid, $1, $5, $5, $6, $6,
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
)%5$s
SELECT (SELECT array_agg((id, verdict, xyz->>'uuid', (xyz->>'version')::int8,
                CASE WHEN $17 THEN naksha_feature(geo, jsondata) END)::naksha_outcome) FROM told),
       array_agg(id) FILTER (WHERE old_i IS NULL),
       count(*) FILTER (WHERE old_i IS NOT NULL AND old_xyz->>'txn' <> $1::text),
       0, array_agg(tomb_i ORDER BY tomb_i) FILTER (WHERE tomb_i IS NOT NULL),
       max(greatest((old_xyz->>'txn')::int8, (tomb_xyz->>'txn')::int8)),
       (SELECT area FROM extent),
       coalesce((SELECT jsonb_build_object('verdict', verdict, 'feature', id, 'head',
                   convert_from(naksha_feature(old_geo, old_json), 'UTF8')::jsonb)
          FROM judged WHERE verdict IN ('CONFLICT', 'MISSING', 'EXISTS') ORDER BY id LIMIT 1),
          CASE WHEN (SELECT count(*) FROM changed) + (SELECT count(*) FROM added) <> count(*)
               THEN '{"verdict": "OVERTAKEN"}'::jsonb END),
       (SELECT corners FROM extent)
  FROM states$sql$,
    leaf, c.id || '_del', naksha_numbers(c),
    naksha_kept_sql(day, 'SELECT old_i, old_geo, naksha_closed(old_json, $1) FROM states '
                         'WHERE old_i IS NOT NULL'),
    naksha_extent_sql('SELECT geo::box3d AS box FROM states UNION ALL '
                      'SELECT old_geo::box3d FROM states WHERE old_geo IS DISTINCT FROM geo'));

-- Writes one feature from plain SQL, where INSERT … ON CONFLICT cannot be used: the GeoJSON
-- contains its geometry, or it is a separate argument; the collection's prefix is removed from the
-- id. With `lock`, a uuid of this collection must be HEAD's; without, it is ignored.
CREATE OR REPLACE FUNCTION naksha_upsert(
    collection_id text, feature jsonb, geo geometry DEFAULT NULL, lock bool DEFAULT true)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c      naksha_collection := naksha_open(collection_id);
    id     text := feature->>'id';
    sent   jsonb := naksha_xyz(feature);
    shape  record;
    result naksha_outcome;
BEGIN
    IF starts_with(id, c.id_prefix) THEN
        id := substr(id, length(c.id_prefix) + 1);
        feature := jsonb_set(feature, '{id}', to_jsonb(id));
    END IF;
    shape := naksha_shape(c, id, feature, geo, NULL, NULL);
    PERFORM naksha_check_id(c, feature), naksha_check_geo(c, id, shape.geo),
            naksha_check_document(c, id, feature);
    SELECT * INTO result FROM naksha_write(collection_id, '{upsert}',
        (naksha_batch(ARRAY[id])).counts, ARRAY[id],
        ARRAY[naksha_plain_content(feature, shape.three_d)], ARRAY[ST_AsBinary(shape.geo)],
        ARRAY[naksha_qrid(shape.geo)], ARRAY[naksha_new_tags(sent)],
        ARRAY[naksha_new_crid(sent)],
        ARRAY[CASE WHEN lock THEN naksha_lock_of(c, sent->>'uuid') END]);
    RETURN result.uuid;
END $$;
