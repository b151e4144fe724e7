-- Delete, restore and purge.

-- Statement text for one leaf; its parameters are documented at naksha_write. A tombstone masks the
-- feature of the same id in the layers below, unless its namespace contains `"masks": false`.
CREATE OR REPLACE FUNCTION naksha_delete_sql(c naksha_collection, leaf text, day text) RETURNS text
STABLE
RETURN format($sql$WITH old AS (
    SELECT i, geo, jsondata, naksha_xyz(jsondata) AS xyz FROM %1$I WHERE jsondata->>'id' = ANY($7)
), judged AS (
    SELECT n.id, n.lock, old.*, n.lock IS NOT NULL AND n.lock IS DISTINCT FROM old.i AS bad
      FROM unnest($7::text[], $13::int8[]) AS n(id, lock)
      LEFT JOIN old ON old.jsondata->>'id' = n.id
), gone AS (
    SELECT id, i, geo, jsondata, xyz FROM judged WHERE i IS NOT NULL AND NOT bad
     ORDER BY (xyz->>'qrid') COLLATE "C"
)%2$s, removed AS (
    DELETE FROM %1$I AS head USING tombs t WHERE head.i = t.old_i RETURNING head.i
)%3$s
SELECT (SELECT array_agg((id, 'DELETED', naksha_xyz(jsondata)->>'uuid',
                          (naksha_xyz(jsondata)->>'version')::int8,
                          CASE WHEN $17 THEN naksha_feature(geo, jsondata) END)::naksha_outcome)
          FROM tombs)
       || (SELECT array_agg((id, 'RETAINED', NULL, NULL, NULL)::naksha_outcome) FROM judged
            WHERE i IS NULL AND NOT bad),
       NULL, 0, count(*), NULL, max((old_xyz->>'txn')::int8), (SELECT area FROM extent),
       coalesce((SELECT jsonb_build_object('feature', id, 'verdict', 'CONFLICT', 'head',
                   convert_from(naksha_feature(geo, jsondata), 'UTF8')::jsonb)
          FROM judged WHERE bad ORDER BY id LIMIT 1),
          CASE WHEN (SELECT count(*) FROM removed) <> count(*)
               THEN '{"verdict": "OVERTAKEN"}'::jsonb END),
       (SELECT corners FROM extent)
  FROM tombs$sql$, leaf, naksha_tombs_sql(c, day,
    $sql$CASE $15 WHEN 'unmask' THEN '{"masks": false}'::jsonb ELSE '{}' END$sql$),
    naksha_extent_sql('SELECT geo::box3d AS box FROM tombs'));

CREATE OR REPLACE FUNCTION naksha_restore_sql(c naksha_collection, leaf text, day text) RETURNS text
STABLE
RETURN format($sql$WITH tomb AS (
    DELETE FROM %1$I WHERE jsondata->>'id' = ANY($7) RETURNING i, geo, jsondata
), numbered AS (
    SELECT jsondata->>'id' AS id, nextval(%2$L) AS i, geo, jsondata AS old_json, i AS old_i,
           naksha_xyz(jsondata) AS xyz FROM tomb
), states AS (
    SELECT id, i, geo, old_i, old_json, xyz, naksha_with_xyz(old_json, %3$s) AS jsondata
      FROM numbered
)%4$s, added AS (
    INSERT INTO %5$I SELECT i, geo, jsondata FROM states ON CONFLICT DO NOTHING RETURNING i
)%6$s
SELECT array_agg((id, 'RESTORED', naksha_xyz(jsondata)->>'uuid',
                  (naksha_xyz(jsondata)->>'version')::int8,
                  CASE WHEN $17 THEN naksha_feature(geo, jsondata) END)::naksha_outcome),
       NULL, count(*), 0, NULL, max((xyz->>'txn')::int8), (SELECT area FROM extent),
       coalesce((SELECT jsonb_build_object('feature', n, 'verdict', 'MISSING') FROM unnest($7) n
          WHERE n NOT IN (SELECT id FROM states) ORDER BY n LIMIT 1),
          CASE WHEN (SELECT count(*) FROM added) <> count(*)
               THEN '{"verdict": "OVERTAKEN"}'::jsonb END),
       (SELECT corners FROM extent)
  FROM states$sql$,
    c.id || '_del', naksha_numbers(c), naksha_moved_sql('UPDATE'),
    naksha_kept_sql(day, $sql$SELECT old_i, geo, naksha_closed(old_json, $1) FROM states
     WHERE (xyz->>'txn')::int8 < $1$sql$), leaf,
    naksha_extent_sql('SELECT geo::box3d AS box FROM states'));

-- The ids whose tombstones are not younger than a transaction.
CREATE OR REPLACE FUNCTION naksha_dead(c naksha_collection, ids text[], at int8) RETURNS text[]
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan SET array_nulls = on AS $$
DECLARE
    statement text := format(
        'SELECT array_agg(jsondata->>''id'') FROM %I WHERE jsondata->>''id'' = ANY($1) '
        'AND naksha_xyz_txn(jsondata) <= $2', c.id || '_del');
    dead      text[];
BEGIN
    EXECUTE CASE WHEN cardinality(ids) > 50 THEN statement
                 ELSE naksha_planned('text[], int8', statement) || format('(%L, %L)', ids, at) END
       INTO dead USING ids, at;
    RETURN dead;
END $$;

-- Removes published tombstones; a tombstone that is not published yet stays. With history, the
-- tombstone goes there as [deleted, purged), so that "deleted at v" stays right for every v.
CREATE OR REPLACE FUNCTION naksha_purge(
    collection_id text, counts int[], ids text[], resolved int8 DEFAULT NULL)
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    c         naksha_collection := naksha_open(collection_id, resolved);
    published int8 := coalesce((SELECT max(v.txn) FROM naksha_version v), 0);
    bad       jsonb;
    dead      text[];
    gone      record;
BEGIN
    PERFORM naksha_mark_own();
    PERFORM naksha_lock_rows(c, ids, counts);
    EXECUTE format('SELECT jsonb_build_object(''feature'', min(jsondata->>''id''), ''verdict'', '
                   '''LIVE'') FROM %I WHERE jsondata->>''id'' = ANY($1) AND '
                   'substring(md5(jsondata->>''id''), 1, 1) = ANY($2) HAVING count(*) > 0', c.id)
       INTO bad USING ids, (SELECT array_agg(to_hex(n - 1)) FROM generate_series(1, 16) n
                             WHERE counts[n] > 0);
    IF bad IS NOT NULL THEN
        PERFORM naksha_raise_verdict(c, bad);
    END IF;
    dead := naksha_dead(c, ids, published);
    IF dead IS NOT NULL THEN
        SELECT * INTO gone FROM naksha_untomb(c, naksha_txn(), dead);
        PERFORM naksha_check_order(greatest(gone.latest, c.txn), naksha_name(c));
        PERFORM naksha_tx_count(c, 0, 0, 0, cardinality(gone.removed), NULL, '{}');
    END IF;
    RETURN QUERY SELECT n, CASE WHEN n = ANY(dead) THEN 'PURGED' ELSE 'RETAINED' END,
                        NULL::text, NULL::int8, NULL::bytea FROM unnest(ids) n;
END $$;

-- Ids in the form that the functions above require: distinct, sorted by (leaf, id), and counted per
-- leaf.
CREATE OR REPLACE FUNCTION naksha_batch(given text[], OUT counts int[], OUT ids text[])
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT (SELECT array_agg((SELECT count(*)::int FROM (SELECT DISTINCT id FROM unnest(given) id) d
                               WHERE naksha_leaf(d.id) = to_hex(n)) ORDER BY n)
              FROM generate_series(0, 15) n),
           (SELECT array_agg(d.id ORDER BY naksha_leaf(d.id), d.id USING ~<~)
              FROM (SELECT DISTINCT id FROM unnest(given) id) d);
END;

-- For plain SQL: SELECT * FROM naksha_purge('roads', ARRAY['a', 'b']).
CREATE OR REPLACE FUNCTION naksha_purge(collection_id text, ids text[])
RETURNS SETOF naksha_outcome
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT p.* FROM naksha_batch(ids) b, naksha_purge(collection_id, b.counts, b.ids) p;
END;

CREATE OR REPLACE FUNCTION naksha_restore(collection_id text, ids text[])
RETURNS SETOF naksha_outcome
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT r.* FROM naksha_batch(ids) b,
                  naksha_write(collection_id, '{restore}', b.counts, b.ids) r;
END;
