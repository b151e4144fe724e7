-- Delete, restore and purge.

-- $1 ids $2 locks $3 txn $4 GUID prefix $5 author $6 app id $7 now $8 wall clock $9 features
CREATE OR REPLACE FUNCTION naksha_delete_sql(c naksha_collection, leaf text, day text) RETURNS text
IMMUTABLE
RETURN format($sql$WITH old AS (
    SELECT i, geo, jsondata, naksha_xyz(jsondata) AS xyz FROM %1$I WHERE jsondata->>'id' = ANY($1)
), judged AS (
    SELECT n.id, n.lock, old.*, n.lock IS NOT NULL AND n.lock IS DISTINCT FROM old.i AS bad
      FROM unnest($1::text[], $2::int8[]) AS n(id, lock) LEFT JOIN old ON old.jsondata->>'id' = n.id
), numbered AS (
    SELECT id, nextval(%2$L) AS i, i AS old_i, geo, jsondata, xyz
      FROM (SELECT * FROM judged WHERE i IS NOT NULL AND NOT bad ORDER BY xyz->>'qrid') AS near
), tombs AS (
    SELECT id, i, geo, old_i, jsondata AS old_json, xyz AS old_xyz,
           naksha_with_xyz(jsondata, naksha_make_xyz('DELETE', (xyz->>'version')::int8 + 1,
               coalesce($5, xyz->>'author'), $6, $4 || i, xyz->>'uuid', NULL, $3,
               (xyz->>'createdAt')::int8, $7, (xyz->>'rtcts')::int8, $8, xyz->'tags',
               xyz->>'crid', xyz->>'qrid')) AS jsondata
      FROM numbered
)%3$s, entombed AS (
    INSERT INTO %4$I SELECT i, geo, jsondata FROM tombs
    ON CONFLICT ((jsondata->>'id') text_pattern_ops) DO UPDATE
       SET i = excluded.i, geo = excluded.geo, jsondata = excluded.jsondata
), gone AS (
    DELETE FROM %1$I AS head USING tombs t WHERE head.i = t.old_i RETURNING head.i
)
SELECT (SELECT array_agg((id, 'DELETED', naksha_xyz(jsondata)->>'uuid',
                          (naksha_xyz(jsondata)->>'version')::int8,
                          CASE WHEN $9 THEN naksha_feature(geo, jsondata) END)::naksha_outcome)
          FROM tombs)
       || (SELECT array_agg((id, 'RETAINED', NULL, NULL, NULL)::naksha_outcome) FROM judged
            WHERE i IS NULL AND NOT bad),
       NULL, 0, count(*), 0, max((old_xyz->>'txn')::int8), ST_SetSRID(ST_Extent(geo), 4326),
       coalesce((SELECT jsonb_build_object('feature', id, 'verdict', 'CONFLICT', 'head',
                   convert_from(naksha_feature(geo, jsondata), 'UTF8')::jsonb)
          FROM judged WHERE bad ORDER BY id LIMIT 1),
          CASE WHEN (SELECT count(*) FROM gone) <> count(*)
               THEN '{"verdict": "OVERTAKEN"}'::jsonb END)
  FROM tombs$sql$,
    leaf, format('%I', c.id || '_i_seq'),
    CASE WHEN day IS NULL THEN '' ELSE format($sql$, kept AS (
    INSERT INTO %I
    SELECT old_i, geo, naksha_closed(old_json, $3) FROM tombs UNION ALL
    SELECT i, geo, naksha_closed(jsondata, $3) FROM tombs
)$sql$, day) END, c.id || '_del');

CREATE OR REPLACE FUNCTION naksha_delete(
    collection_id text, counts int[], ids text[], locks int8[], want bool DEFAULT false)
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
DECLARE
    c   naksha_collection := naksha_open(collection_id);
    txn int8;
    day text;
    lo  int := 1;
    r   naksha_leaf_result;
BEGIN
    PERFORM naksha_lock_rows(c, ids, counts);
    txn := naksha_txn();
    IF c.off_since IS NULL THEN
        day := naksha_ensure_day(c.id || '_hst', txn);
    END IF;
    FOR leaf IN 1..16 LOOP
        CONTINUE WHEN counts[leaf] = 0;
        EXECUTE naksha_delete_sql(c, c.id || '_p' || to_hex(leaf - 1), day) INTO r
          USING ids[lo : lo + counts[leaf] - 1], locks[lo : lo + counts[leaf] - 1], txn,
                naksha_guid_prefix(naksha_storage_id(), c.id, txn), naksha_author(),
                naksha_app_id(), naksha_epoch_ms(naksha_now()), naksha_clock_ms(), want;
        IF r.bad IS NOT NULL THEN
            PERFORM naksha_raise_verdict(c, r.bad);
        END IF;
        PERFORM naksha_check_order(greatest(r.latest, c.txn), c.id);
        IF r.tombs > 0 THEN
            PERFORM naksha_tx_count(c, 0, 0, r.tombs, 0, r.area);
        END IF;
        RETURN QUERY SELECT * FROM unnest(r.outcomes);
        lo := lo + counts[leaf];
    END LOOP;
END $$;

-- $1 ids $2 txn $3 GUID prefix $4 author $5 app id $6 now $7 wall clock $8 features
CREATE OR REPLACE FUNCTION naksha_restore_sql(c naksha_collection, leaf text, day text) RETURNS text
IMMUTABLE
RETURN format($sql$WITH tomb AS (
    DELETE FROM %1$I WHERE jsondata->>'id' = ANY($1) RETURNING i, geo, jsondata
), numbered AS (
    SELECT jsondata->>'id' AS id, nextval(%2$L) AS i, geo, jsondata AS old_json, i AS old_i,
           naksha_xyz(jsondata) AS xyz FROM tomb
), states AS (
    SELECT id, i, geo, old_i, old_json, xyz,
           naksha_with_xyz(old_json, naksha_make_xyz('UPDATE', (xyz->>'version')::int8 + 1,
               coalesce($4, xyz->>'author'), $5, $3 || i, xyz->>'uuid', NULL, $2,
               (xyz->>'createdAt')::int8, $6, (xyz->>'rtcts')::int8, $7, xyz->'tags',
               xyz->>'crid', xyz->>'qrid')) AS jsondata
      FROM numbered
)%3$s, added AS (
    INSERT INTO %4$I SELECT i, geo, jsondata FROM states ON CONFLICT DO NOTHING RETURNING i
)
SELECT array_agg((id, 'RESTORED', naksha_xyz(jsondata)->>'uuid',
                  (naksha_xyz(jsondata)->>'version')::int8,
                  CASE WHEN $8 THEN naksha_feature(geo, jsondata) END)::naksha_outcome),
       NULL, count(*), count(*), (SELECT count(*) FROM added), max((xyz->>'txn')::int8),
       ST_SetSRID(ST_Extent(geo), 4326),
       (SELECT jsonb_build_object('feature', n, 'verdict', 'MISSING') FROM unnest($1) n
         WHERE n NOT IN (SELECT id FROM states) ORDER BY n LIMIT 1)
  FROM states$sql$,
    c.id || '_del', format('%I', c.id || '_i_seq'),
    CASE WHEN day IS NULL THEN '' ELSE format($sql$, kept AS (
    INSERT INTO %I SELECT old_i, geo, naksha_closed(old_json, $2) FROM states
     WHERE (xyz->>'txn')::int8 < $2
)$sql$, day) END, leaf);

CREATE OR REPLACE FUNCTION naksha_restore(
    collection_id text, counts int[], ids text[], want bool DEFAULT false)
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
DECLARE
    c   naksha_collection := naksha_open(collection_id);
    txn int8;
    day text;
    lo  int := 1;
    r   naksha_leaf_result;
BEGIN
    PERFORM naksha_lock_rows(c, ids, counts);
    txn := naksha_txn();
    IF c.off_since IS NULL THEN
        day := naksha_ensure_day(c.id || '_hst', txn);
    END IF;
    FOR leaf IN 1..16 LOOP
        CONTINUE WHEN counts[leaf] = 0;
        EXECUTE naksha_restore_sql(c, c.id || '_p' || to_hex(leaf - 1), day) INTO r
          USING ids[lo : lo + counts[leaf] - 1], txn,
                naksha_guid_prefix(naksha_storage_id(), c.id, txn), naksha_author(),
                naksha_app_id(), naksha_epoch_ms(naksha_now()), naksha_clock_ms(), want;
        IF r.bad IS NOT NULL THEN
            PERFORM naksha_raise_verdict(c, r.bad);
        END IF;
        IF r.added <> r.tombs THEN
            PERFORM naksha_check_order(9223372036854775807, c.id);
        END IF;
        PERFORM naksha_check_order(greatest(r.latest, c.txn), c.id);
        PERFORM naksha_tx_count(c, 0, r.updated, 0, 0, r.area);
        RETURN QUERY SELECT * FROM unnest(r.outcomes);
        lo := lo + counts[leaf];
    END LOOP;
END $$;

-- Removes published tombstones; a tombstone that is not published yet stays. With history, the
-- tombstone goes there as [deleted, purged), so that "deleted at v" stays right for every v.
CREATE OR REPLACE FUNCTION naksha_purge(collection_id text, counts int[], ids text[])
RETURNS SETOF naksha_outcome
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on' AS $$
DECLARE
    c         naksha_collection := naksha_open(collection_id);
    published int8 := coalesce((SELECT max(v.txn) FROM naksha_version v), 0);
    bad       jsonb;
    dead      text[];
    gone      record;
BEGIN
    PERFORM naksha_lock_rows(c, ids, counts);
    EXECUTE format('SELECT jsonb_build_object(''feature'', min(jsondata->>''id''), ''verdict'', '
                   '''LIVE'') FROM %I WHERE jsondata->>''id'' = ANY($1) AND '
                   'substring(md5(jsondata->>''id''), 1, 1) = ANY($2) HAVING count(*) > 0', c.id)
       INTO bad USING ids, (SELECT array_agg(to_hex(n - 1)) FROM generate_series(1, 16) n
                             WHERE counts[n] > 0);
    IF bad IS NOT NULL THEN
        PERFORM naksha_raise_verdict(c, bad);
    END IF;
    EXECUTE format('SELECT array_agg(jsondata->>''id'') FROM %I WHERE jsondata->>''id'' = ANY($1) '
                   'AND naksha_xyz_txn(jsondata) <= $2', c.id || '_del') INTO dead
      USING ids, published;
    IF dead IS NOT NULL THEN
        SELECT * INTO gone FROM naksha_untomb(c, naksha_txn(), dead);
        PERFORM naksha_check_order(greatest(gone.latest, c.txn), c.id);
        PERFORM naksha_tx_count(c, 0, 0, 0, gone.removed, NULL);
    END IF;
    RETURN QUERY SELECT n, CASE WHEN n = ANY(dead) THEN 'PURGED' ELSE 'RETAINED' END,
                        NULL::text, NULL::int8, NULL::bytea FROM unnest(ids) n;
END $$;

-- Ids as the functions above want them: each once, sorted by (leaf, id), and counted per leaf.
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
    SELECT r.* FROM naksha_batch(ids) b, naksha_restore(collection_id, b.counts, b.ids) r;
END;
