-- Reading the tile cells that transactions have recorded (015), and keeping the last change of each
-- cell when the log expires.

-- The last transaction whose cells are in naksha_cell.
CREATE OR REPLACE FUNCTION naksha_folded_txn() RETURNS int8
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN coalesce((SELECT k.own FROM naksha_cell k WHERE k.collection = 0), 0);
END $$;

-- Statement that folds the log after transaction $1 up to $2. Collections that do not exist any
-- more are left out, and so are those that had the same name before.
CREATE OR REPLACE FUNCTION naksha_fold_sql(log text) RETURNS text
STABLE
RETURN format($sql$INSERT INTO naksha_cell AS k (collection, overlay, cell, own, below)
SELECT s.collection, s.overlay, s.cell, max(s.own), max(s.below)
  FROM (SELECT r.collection, r.overlay, r.cell >> up AS cell,
               CASE up WHEN 0 THEN r.txn ELSE 0 END AS own,
               CASE up WHEN 0 THEN 0 ELSE r.txn END AS below
          FROM (SELECT c.number AS collection, t.overlay, u.cell, max(t.txn) AS txn
                  FROM %I t JOIN naksha_collection c ON c.id = t.id AND c.overlay = 0,
                       unnest(coalesce(t.cells, '{1}')) AS u(cell)
                 WHERE t.txn > $1 AND t.txn <= $2 AND t.action <> 'MESSAGE'
                   AND t.txn >= c.created_txn
                   AND (t.overlay = 0 OR EXISTS (SELECT FROM naksha_overlay o
                                                  WHERE o.number = t.overlay))
                 GROUP BY c.number, t.overlay, u.cell) AS r,
               generate_series(0, 24, 2) AS up
         WHERE r.cell >> up > 0) AS s
 GROUP BY s.collection, s.overlay, s.cell
 ORDER BY s.collection, s.overlay, s.cell
ON CONFLICT (collection, overlay, cell) DO UPDATE
   SET own = greatest(k.own, excluded.own), below = greatest(k.below, excluded.below)$sql$, log);

-- Folds at most `most` published transactions into naksha_cell; returns how many, 0 also if another
-- session is folding. Numbers below the last published one never appear later.
CREATE OR REPLACE FUNCTION naksha_fold_cells(most int DEFAULT 500) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    first int8;
    last  int8;
    found int;
BEGIN
    PERFORM naksha_mark_own();
    IF NOT pg_try_advisory_xact_lock(naksha_lock_class(), 7) THEN
        RETURN 0;
    END IF;
    first := naksha_folded_txn();
    SELECT count(*), max(v.txn) INTO found, last
      FROM (SELECT n.txn FROM naksha_version n WHERE n.txn > first ORDER BY n.txn LIMIT most) AS v;
    IF found = 0 THEN
        RETURN 0;
    END IF;
    BEGIN
        EXECUTE naksha_fold_sql(naksha_log_between(first, last)) USING first, last;
    EXCEPTION WHEN undefined_table THEN  -- maintenance has merged the day into a month
        EXECUTE naksha_fold_sql('naksha_tx') USING first, last;
    END;
    INSERT INTO naksha_cell (collection, overlay, cell, own, below)
    SELECT 0, 0, 0, last, CASE v.seq_number WHEN 1 THEN 0 ELSE v.txn END
      FROM naksha_version v ORDER BY v.seq_number LIMIT 1
    ON CONFLICT (collection, overlay, cell) DO UPDATE SET own = excluded.own;
    RETURN found;
END $$;

-- Deletes at most `most` cells of removed collections and overlays; returns how many.
CREATE OR REPLACE FUNCTION naksha_sweep_cells(most int DEFAULT 50000) RETURNS int
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' AS $$
DECLARE
    swept int;
BEGIN
    PERFORM naksha_mark_own();
    IF NOT pg_try_advisory_xact_lock(naksha_lock_class(), 7) THEN
        RETURN 0;
    END IF;
    -- Each collection and overlay is found by one look-up in the index.
    WITH RECURSIVE held AS (
        SELECT 0 AS collection, 0 AS overlay
        UNION ALL
        SELECT n.collection, n.overlay FROM held h, LATERAL (
            SELECT k.collection, k.overlay FROM naksha_cell k
             WHERE (k.collection, k.overlay) > (h.collection, h.overlay)
             ORDER BY k.collection, k.overlay LIMIT 1) AS n
    ), gone AS (
        SELECT h.* FROM held h
         WHERE h.collection > 0
           AND (NOT EXISTS (SELECT FROM naksha_collection c WHERE c.number = h.collection)
                OR h.overlay > 0 AND NOT EXISTS (SELECT FROM naksha_overlay o
                                                  WHERE o.number = h.overlay))
    )
    DELETE FROM naksha_cell WHERE ctid = ANY(ARRAY(
        SELECT k.ctid FROM gone g JOIN naksha_cell k
            ON k.collection = g.collection AND k.overlay = g.overlay LIMIT most));
    GET DIAGNOSTICS swept = ROW_COUNT;
    RETURN swept;
END $$;

-- The last published version, and how many versions follow a transaction up to it; null if some of
-- these may have expired.
CREATE OR REPLACE FUNCTION naksha_versions_since(
    after int8, OUT last_seq int8, OUT last_txn int8, OUT number int8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
    SELECT v.seq_number, v.txn INTO last_seq, last_txn
      FROM naksha_version v ORDER BY v.seq_number DESC LIMIT 1;
    last_seq := coalesce(last_seq, 0);
    last_txn := coalesce(last_txn, 0);
    IF after = last_txn THEN
        number := 0;
    ELSIF after < last_txn THEN
        number := last_seq - coalesce(
            (SELECT v.seq_number FROM naksha_version v WHERE v.txn <= after
              ORDER BY v.txn DESC LIMIT 1),
            (SELECT 0 WHERE EXISTS (SELECT FROM naksha_version v WHERE v.seq_number = 1)));
    END IF;
END $$;

-- Whether every committed transaction is published, the last one of them being `last`. Where
-- nothing is written, the sequence may be behind the log.
CREATE OR REPLACE FUNCTION naksha_is_settled(last int8, is_writable bool) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    drawn int8 := coalesce(pg_sequence_last_value('naksha_tx_object_id_seq'), 0);
BEGIN
    IF drawn <= last AND is_writable THEN
        RETURN true;
    END IF;
    RETURN NOT naksha_has_unpublished(
        last, CASE WHEN drawn > last THEN drawn ELSE 9223372036854775807 END);
END $$;

-- The last published version, whether it includes everything that is committed, and the cells that
-- published transactions have changed after one: a row for each of them, or one without a change.
-- `is_whole` is false, and there is no change, if there are more than `most`, or if log rows are
-- missing: each version has at least one. All is read with the snapshot of the calling statement.
CREATE OR REPLACE FUNCTION naksha_cell_log(after int8, most int, is_writable bool)
RETURNS TABLE (seq_number int8, txn int8, is_settled bool, is_whole bool, changed int8,
               collection text, overlay_number int4, cells int8[])
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
    v       record := naksha_versions_since(after);
    settled bool := naksha_is_settled(v.last_txn, is_writable);
    log     text;
BEGIN
    IF v.number > 0 THEN
        FOREACH log IN ARRAY ARRAY[naksha_log_between(after, v.last_txn), 'naksha_tx'] LOOP
            BEGIN
                RETURN QUERY EXECUTE format($sql$WITH found AS (
                    SELECT t.txn, t.id, t.overlay, coalesce(t.cells, '{1}') FROM %1$I t
                     WHERE t.txn > $1 AND t.txn <= $2 AND t.action <> 'MESSAGE'
                       AND t.cells IS DISTINCT FROM '{}' ORDER BY t.txn, t.i LIMIT $3 + 1)
                    SELECT $4, $2, $5, w.is_whole, f.*
                      FROM (SELECT (SELECT count(*) FROM found) <= $3
                               AND (SELECT count(DISTINCT t.txn) FROM %1$I t
                                     WHERE t.txn > $1 AND t.txn <= $2) = $6 AS is_whole) AS w
                      LEFT JOIN found f ON w.is_whole ORDER BY f.txn$sql$, log)
                    USING after, v.last_txn, most, v.last_seq, settled, v.number;
                RETURN;
            EXCEPTION WHEN undefined_table THEN  -- maintenance has merged the day into a month
                CONTINUE;
            END;
        END LOOP;
    END IF;
    RETURN QUERY SELECT v.last_seq, v.last_txn, settled, v.number IS NOT NULL, NULL::int8,
                        NULL::text, NULL::int4, NULL::int8[];
END $$;

-- The last transaction after `first` up to `last` that recorded one of the `outer_cells`, or one
-- below the `wanted` cells; and the number of transactions.
CREATE OR REPLACE FUNCTION naksha_logged_change(
    first int8, last int8, collection_id text, overlay_number int4, wanted int8[],
    outer_cells int8[], OUT last_change int8, OUT number int8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    log text;
BEGIN
    FOREACH log IN ARRAY ARRAY[naksha_log_between(first, last), 'naksha_tx'] LOOP
        BEGIN
            EXECUTE format($sql$SELECT count(DISTINCT t.txn), max(t.txn) FILTER (
                    WHERE t.id = $3 AND t.overlay = $4 AND t.action <> 'MESSAGE'
                      AND (t.cells IS NULL OR t.cells && $6 OR EXISTS (
                           SELECT FROM unnest(t.cells) AS c, generate_series(2, 24, 2) AS up
                            WHERE c >> up = ANY($5))))
                  FROM %I t WHERE t.txn > $1 AND t.txn <= $2$sql$, log)
               INTO number, last_change
              USING first, last, collection_id, overlay_number, wanted, outer_cells;
            RETURN;
        EXCEPTION WHEN undefined_table THEN  -- maintenance has merged the day into a month
            CONTINUE;
        END;
    END LOOP;
END $$;

-- The last published transaction that changed one of the `wanted` cells of a collection, which are
-- of one level, a cell that contains one of them, or one below them; 0 for none. If log rows are
-- missing that are not folded, it is the last published one. `unfolded` is the number of versions
-- that were looked up in the log.
CREATE OR REPLACE FUNCTION naksha_last_cell_change(
    collection_id text, overlay_number int4, wanted int8[], OUT last int8, OUT unfolded int8)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
    folded      int8 := naksha_folded_txn();
    v           record := naksha_versions_since(folded);
    outer_cells int8[] := ARRAY(SELECT DISTINCT w >> up FROM unnest(wanted) AS w,
                                       generate_series(0, 24, 2) AS up WHERE w >> up > 0);
    logged      int8;
    seen        int8 := 0;
BEGIN
    unfolded := coalesce(v.number, 0);
    IF unfolded > 0 THEN
        SELECT l.last_change, l.number INTO logged, seen
          FROM naksha_logged_change(folded, v.last_txn, collection_id, overlay_number, wanted,
                                    outer_cells) AS l;
    END IF;
    IF seen IS DISTINCT FROM v.number THEN
        last := v.last_txn;
        RETURN;
    END IF;
    SELECT greatest(0, logged, max(k.own),
                    max(k.below) FILTER (WHERE k.cell = ANY(wanted)))
      INTO last
      FROM naksha_collection c JOIN naksha_cell k
        ON (k.collection, k.overlay) = (c.number, overlay_number) AND k.cell = ANY(outer_cells)
     WHERE c.id = collection_id AND c.overlay = 0;
    last := greatest(last, (SELECT k.below FROM naksha_cell k WHERE k.collection = 0));
END $$;
