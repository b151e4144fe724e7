-- Publication: every committed transaction gets a dense number, in txn order, once no lower txn
-- can still appear.
--
-- A writer reads the last number drawn, L, takes a shared lock on L and only then draws, so its own
-- number is greater than L. If there is no such lock below a number, all smaller numbers are
-- decided. The order of the three reads here matters: first the last number drawn, then the locks,
-- then, with a new snapshot, the log.

-- `owner` is the holder of the locks: a backend, or a prepared transaction, which has no pid.
-- Replacing a view locks out all its readers, so a change of it is a migration step.
DO $$
BEGIN
    IF to_regclass('naksha_open_draws') IS NULL THEN
        CREATE VIEW naksha_open_draws AS
        SELECT l.pid, (l.classid::int8 << 32 | l.objid::int8) AS txn, l.virtualtransaction AS owner
          FROM pg_locks l
         WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
           AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
           AND EXISTS (SELECT FROM pg_locks mark
                        WHERE mark.locktype = 'advisory' AND mark.objsubid = 2 AND mark.granted
                          AND mark.virtualtransaction = l.virtualtransaction
                          AND mark.database = l.database AND mark.objid = 0
                          AND mark.classid = 'naksha_tx_object_id_seq'::regclass::oid);
    END IF;
END $$;

-- All transactions below this are decided.
CREATE OR REPLACE FUNCTION naksha_publish_bound() RETURNS int8
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    drawn  int8 := coalesce(pg_sequence_last_value('naksha_tx_object_id_seq'), 1) + 1;
    lowest int8;
BEGIN
    SELECT min(o.txn) + 1 INTO lowest FROM naksha_open_draws o;
    RETURN least(drawn, lowest);
END $$;

-- Takes the publication lock. It waits for another publisher, except one that is idle in its
-- transaction, or prepared, which might not end for long.
CREATE OR REPLACE FUNCTION naksha_publish_lock() RETURNS bool
LANGUAGE plpgsql SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
BEGIN
    FOR attempt IN 1..25 LOOP
        BEGIN
            PERFORM pg_advisory_xact_lock(naksha_lock_class(), 2);
            RETURN true;
        EXCEPTION WHEN lock_not_available THEN
            -- A working publisher publishes for this session, too. The pid of a prepared
            -- transaction is null; the state of a session is hidden from other roles.
            EXIT WHEN NOT EXISTS (
                SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
                 WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.objid = 2
                   AND l.classid = 'naksha_tx_object_id_seq'::regclass::oid
                   AND a.datname = current_database() AND coalesce(a.state, 'active') = 'active');
        END;
    END LOOP;
    -- The holder may have ended since the time-out.
    RETURN pg_try_advisory_xact_lock(naksha_lock_class(), 2);
END $$;

-- The table that has the log from one transaction to another: a day's partition if it is the only
-- one, or else the log as a whole. The last partition, for all coming days, may be replaced at any
-- time.
CREATE OR REPLACE FUNCTION naksha_log_between(first int8, last int8) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    part text;
BEGIN
    IF first > 0 AND first / 100000000000 = last / 100000000000 THEN
        part := naksha_partition_of('naksha_tx', last);
    END IF;
    RETURN CASE WHEN part NOT LIKE 'naksha\_tx\_from\_%' THEN part ELSE 'naksha_tx' END;
END $$;

-- Statement that publishes the transactions of a log table that are due.
-- $1 last published txn $2 bound $3 most $4 last version $5 its time
CREATE OR REPLACE FUNCTION naksha_publish_sql(log text) RETURNS text
STABLE
RETURN format($sql$WITH due AS (
    SELECT t.txn, min(t.seq_ts) AS dated FROM %1$I t
     WHERE t.seq_number IS NULL AND t.txn > $1 AND t.txn < $2
     GROUP BY t.txn ORDER BY t.txn LIMIT $3
), fresh AS (
    INSERT INTO naksha_version (seq_number, txn, seq_ts)
    SELECT $4 + row_number() OVER (ORDER BY d.txn), d.txn,
           greatest($5, max(coalesce(d.dated, clock_timestamp())) OVER (ORDER BY d.txn))
      FROM due d
    RETURNING seq_number, txn, seq_ts
), marked AS (
    UPDATE %1$I t SET seq_number = f.seq_number, seq_ts = f.seq_ts
      FROM fresh f
     WHERE t.txn = f.txn AND t.txn > $1 AND t.txn < $2 AND t.seq_number IS NULL
)
SELECT count(*), coalesce(max(f.seq_number), $4), coalesce(max(f.txn), $1) FROM fresh f$sql$, log);

-- Publishes what is due below the bound, after the last version, its transaction and time.
CREATE OR REPLACE FUNCTION naksha_publish_between(
    bound int8, most int, prior_seq int8, prior_txn int8, prior_ts timestamptz,
    OUT published int8, OUT last_seq int8, OUT last_txn int8)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    log text := naksha_log_between(prior_txn, bound - 1);
BEGIN
    IF log <> 'naksha_tx' THEN
        BEGIN
            EXECUTE naksha_planned('int8, int8, int4, int8, timestamptz', naksha_publish_sql(log))
                || format('(%L, %L, %L, %L, %L)', prior_txn, bound, most, prior_seq,
                          naksha_time_text(prior_ts))
               INTO published, last_seq, last_txn;
            RETURN;
        EXCEPTION WHEN undefined_table THEN  -- maintenance has merged the day into a month
            NULL;
        END;
    END IF;
    -- Dynamic, so that the plan knows the numbers and opens only the days they are in.
    EXECUTE naksha_publish_sql('naksha_tx')
       INTO published, last_seq, last_txn USING prior_txn, bound, most, prior_seq, prior_ts;
END $$;

-- Whether transactions after the first one, up to the last one, are committed but not published.
CREATE OR REPLACE FUNCTION naksha_has_unpublished(first int8, last int8) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    found     bool;
    statement text := 'SELECT EXISTS (SELECT FROM %I WHERE seq_number IS NULL AND txn > $1 '
                      'AND txn <= $2)';
BEGIN
    EXECUTE format(statement, naksha_log_between(first, last)) INTO found USING first, last;
    RETURN found;
EXCEPTION WHEN undefined_table THEN  -- maintenance has merged the day into a month
    EXECUTE format(statement, 'naksha_tx') INTO found USING first, last;
    RETURN found;
END $$;

-- Publishes at most `most` transactions; returns how many, the last version, and whether committed
-- transactions remain unpublished. The planner cannot know how many wait: it estimates one, and
-- would compare each of thousands with every other.
CREATE OR REPLACE FUNCTION naksha_publish(
    most int DEFAULT 10000, OUT published int8, OUT last_seq int8, OUT last_txn int8,
    OUT remaining bool)
LANGUAGE plpgsql SET search_path FROM CURRENT SET naksha.managed = 'on'
SET naksha.depth = '' SET enable_nestloop = off SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    bound   int8;
    drawn   int8;
    last_ts timestamptz;
BEGIN
    PERFORM naksha_mark_own();
    -- The log must be read with a snapshot newer than the locks.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM naksha_raise('N0009', 'naksha_publish() must run at the isolation level '
                             'READ COMMITTED');
    END IF;
    -- Published versions become visible at the end of this transaction, and until then no other
    -- session can publish. So a transaction that has written before, and may continue, is refused.
    IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
        PERFORM naksha_raise('N0009', 'naksha_publish() must not be called in a transaction that '
                             'writes', '{}', 'Call it outside a transaction, after the commit');
    END IF;
    IF NOT naksha_publish_lock() THEN
        SELECT 0, coalesce(max(v.seq_number), 0), coalesce(max(v.txn), 0), true
          INTO published, last_seq, last_txn, remaining FROM naksha_version v;
        RETURN;
    END IF;
    -- A transaction that has read the log before does not notice partitions that others added to
    -- it, unless it requests a lock that it does not hold.
    PERFORM pg_relation_size('naksha_migration');
    bound := naksha_publish_bound();
    SELECT v.seq_number, v.txn, v.seq_ts INTO last_seq, last_txn, last_ts
      FROM naksha_version v ORDER BY v.seq_number DESC LIMIT 1;
    last_seq := coalesce(last_seq, 0);
    last_txn := coalesce(last_txn, 0);
    SELECT p.* INTO published, last_seq, last_txn
      FROM naksha_publish_between(bound, most, last_seq, last_txn, last_ts) p;
    IF published > 0 THEN
        PERFORM pg_notify('naksha_published', naksha_lock_class() || ':' || last_seq);
    END IF;
    drawn := pg_sequence_last_value('naksha_tx_object_id_seq');
    remaining := naksha_has_unpublished(last_txn, drawn);
END $$;

-- Publishes, and looks up those of the `wanted` transactions that are published then, by whomever.
CREATE OR REPLACE FUNCTION naksha_publish_round(
    most int, wanted int8[], OUT published int8, OUT last_seq int8, OUT last_txn int8,
    OUT remaining bool, OUT seq_numbers int8[], OUT txns int8[], OUT times_ms int8[])
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    SELECT p.* INTO published, last_seq, last_txn, remaining FROM naksha_publish(most) p;
    SELECT array_agg(v.seq_number), array_agg(v.txn), array_agg(naksha_epoch_ms(v.seq_ts))
      INTO seq_numbers, txns, times_ms FROM naksha_version v WHERE v.txn = ANY(wanted);
END $$;

-- The oldest transaction that a collection can be read at. Not a single expression, whose plan
-- would contain the log, and lock all its partitions even for a collection that has its history.
CREATE OR REPLACE FUNCTION naksha_floor(collection_id text) RETURNS int8
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    c naksha_collection;
BEGIN
    SELECT * INTO c FROM naksha_collection k WHERE k.id = collection_id;
    IF c.off_since IS NOT NULL THEN
        RETURN greatest(c.floor_txn, naksha_last_write(c.id, c.off_since - 1));
    END IF;
    RETURN c.floor_txn;
END $$;

-- The progress of publication, and what holds it back.
CREATE OR REPLACE FUNCTION naksha_publication(
    OUT last_seq int8, OUT last_txn int8, OUT unpublished int8, OUT held_by text,
    OUT held_since timestamptz)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    -- In one snapshot: a version published between two would be neither the last nor unpublished.
    SELECT coalesce(max(v.seq_number), 0), coalesce(max(v.txn), 0),
           (SELECT count(DISTINCT t.txn) FROM naksha_tx t WHERE t.seq_number IS NULL)
      INTO last_seq, last_txn, unpublished FROM naksha_version v;
    -- A publisher that does not end holds back everything, an open transaction the numbers above
    -- it. A publisher that has just begun is the sequencer at work.
    SELECT naksha_session(h.pid, h.owner), coalesce(p.prepared, a.xact_start)
      INTO held_by, held_since
      FROM (SELECT l.pid, l.virtualtransaction AS owner, 0 AS txn FROM pg_locks l
             WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted AND l.objid = 2
               AND l.classid = 'naksha_tx_object_id_seq'::regclass::oid
               AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            UNION ALL SELECT o.pid, o.owner, o.txn FROM naksha_open_draws o) AS h
      LEFT JOIN pg_stat_activity a ON a.pid = h.pid
      LEFT JOIN pg_locks x ON x.locktype = 'transactionid' AND x.virtualtransaction = h.owner
      LEFT JOIN pg_prepared_xacts p ON h.pid IS NULL AND p.transaction = x.transactionid
     WHERE h.txn > 0 OR h.pid IS NULL OR a.state LIKE 'idle in transaction%'
        OR a.xact_start < clock_timestamp() - interval '1 s'
     ORDER BY h.txn LIMIT 1;
END $$;
