-- Logical replication of a storage to a second database; how to use it is in docs/replication.md.
--
-- Two publications, because leaves of HEAD are identified by their key `i`, which only the leaf
-- has, while history and log are published by their root: the two databases may cut them into days
-- and months differently. The tables are listed one by one: a schema publication would also send
-- the tables that maintenance creates, which the replica does not have.

CREATE OR REPLACE FUNCTION naksha_replicated_tables(by_root bool) RETURNS SETOF text
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT t.name FROM (VALUES ('naksha_tx', true), ('naksha_storage', false),
            ('naksha_collection', false), ('naksha_former', false), ('naksha_version', false),
            ('naksha_pin', false), ('naksha_kept', false), ('naksha_overlay', false),
            ('naksha_cell', false))
        AS t(name, is_root) WHERE t.is_root = by_root
    UNION ALL
    SELECT c.id || s.suffix FROM naksha_collection c,
           LATERAL (SELECT '_hst', true, NULL::bool UNION ALL SELECT '_del', false, NULL
            UNION ALL SELECT '_meta', false, false UNION ALL SELECT '_ids', false, true
            UNION ALL SELECT '_p' || to_hex(n), false, NULL
                        FROM generate_series(0, c.partitions - 1) n)
               AS s(suffix, is_root, of_overlays)
     WHERE s.is_root = by_root AND coalesce(s.of_overlays = (c.overlay <> 0), true);
END;

-- On the source: creates the publications {name}_rows and {name}_days, and adds missing tables.
CREATE OR REPLACE FUNCTION naksha_publish_tables(name text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    by_root bool;
    tbl     text;
    target  text;
BEGIN
    FOREACH by_root IN ARRAY ARRAY[false, true] LOOP
        target := name || CASE WHEN by_root THEN '_days' ELSE '_rows' END;
        IF NOT EXISTS (SELECT FROM pg_publication p WHERE p.pubname = target) THEN
            EXECUTE format('CREATE PUBLICATION %I WITH (publish_via_partition_root = %s)',
                           target, by_root::text);
        END IF;
        FOR tbl IN SELECT t.tbl FROM naksha_replicated_tables(by_root) AS t(tbl)
                    WHERE to_regclass(quote_ident(t.tbl)) NOT IN (
                          SELECT r.prrelid FROM pg_publication_rel r
                            JOIN pg_publication p ON p.oid = r.prpubid
                           WHERE p.pubname = target) LOOP
            EXECUTE format('ALTER PUBLICATION %I ADD TABLE %I', target, tbl);
        END LOOP;
    END LOOP;
END $$;

-- Replaces the only leaf by sixteen empty ones, if the collection has grown on the source: they are
-- new tables of the publication, and copied when the subscription is refreshed.
CREATE OR REPLACE FUNCTION naksha_replica_grow(c naksha_collection) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF c.partitions = 16 AND to_regclass(quote_ident(c.id || '_pf')) IS NULL THEN
        EXECUTE format('DROP TABLE %I', c.id || '_p0');
        PERFORM naksha_create_leaves(c.id, c.points_only, c.partitions),
                naksha_create_triggers(c.id), naksha_write_comment(c.id);
    END IF;
END $$;

-- On the replica: creates the tables of new collections, and partitions for the days ahead, a month
-- each, since DDL is not replicated.
CREATE OR REPLACE FUNCTION naksha_replica_prepare(
    first date DEFAULT (now() AT TIME ZONE 'UTC')::date - 1, days int DEFAULT 62) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c      naksha_collection;
    span   record;
    parent text;
    name   text;
BEGIN
    FOR c IN SELECT * FROM naksha_collection LOOP
        IF to_regclass(quote_ident(c.id)) IS NOT NULL THEN
            PERFORM naksha_replica_grow(c);
        ELSIF c.overlay <> 0 THEN
            PERFORM naksha_create_overlay_tables(c.id, c.points_only);
        ELSE
            PERFORM naksha_create_tables(c.id, c.number, c.points_only, c.partitions),
                    naksha_write_comment(c.id);
        END IF;
    END LOOP;
    -- Tables are found in the catalog, because at first they exist while their rows do not.
    FOR parent IN SELECT k.relname FROM pg_class k
                   WHERE k.relnamespace = quote_ident(current_schema())::regnamespace
                     AND k.relkind = 'p'
                     AND k.relname ~ '_hst$|^naksha_tx$' AND naksha_is_ours(k.oid) LOOP
        FOR day IN 0..days LOOP
            CONTINUE WHEN naksha_partition_of(parent, naksha_day_txn(first + day)) IS NOT NULL;
            SELECT * INTO span FROM naksha_free_span(parent, first + day, 7);
            name := parent || '_' || span.label;
            PERFORM naksha_create_partition(parent, name, span.from_day, span.to_day),
                    naksha_attach_partition(parent, name, span.from_day, span.to_day);
        END LOOP;
    END LOOP;
END $$;

-- On the replica, when it takes over for good: sequences are not replicated, so they are set from
-- the rows.
CREATE OR REPLACE FUNCTION naksha_replica_promote() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    PERFORM setval('naksha_tx_object_id_seq', max(t.txn)), setval('naksha_tx_i_seq', max(t.i))
       FROM naksha_tx t HAVING count(*) > 0;
    PERFORM setval('naksha_collection_number_seq', max(k.number))
       FROM (SELECT number FROM naksha_collection WHERE overlay = 0
             UNION ALL SELECT number FROM naksha_former) AS k
     HAVING count(*) > 0;
    PERFORM setval('naksha_hidden_number_seq', max(h.number)) FROM naksha_collection h
      WHERE h.overlay <> 0 HAVING count(*) > 0;
    PERFORM setval('naksha_overlay_seq', max(k.number))
       FROM (SELECT number FROM naksha_overlay UNION ALL SELECT overlay FROM naksha_collection
             UNION ALL SELECT max(overlay) FROM naksha_tx) AS k
     HAVING max(k.number) > 0;
    -- A collection precedes its overlays, which take their numbers from it.
    FOR c IN SELECT * FROM naksha_collection ORDER BY overlay LOOP
        PERFORM setval(naksha_numbers(c), l.last_i)
           FROM naksha_last_i(c) AS l(last_i) WHERE l.last_i IS NOT NULL;
    END LOOP;
END $$;
