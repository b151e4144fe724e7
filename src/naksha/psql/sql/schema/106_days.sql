-- Partitions of the coming days, created ahead in short transactions of their own: a transaction
-- that creates one blocks all others that need it. The partitions themselves are created by 050.

-- The day of transactions at `now_ms`, or now if null: numbers only roll forward.
CREATE OR REPLACE FUNCTION naksha_writing_day(now_ms int8) RETURNS date
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    -- A query on the sequence would hold one more lock.
    SELECT greatest(naksha_utc_day(coalesce(now_ms, naksha_epoch_ms(clock_timestamp()))),
                    naksha_txn_day(pg_sequence_last_value('naksha_tx_object_id_seq')));
END;

-- The log always has a partition for all days after the existing day partitions, up to the year
-- 9000: {log}_from_{first day}. So a writer finds a place for its log row without creating one.
CREATE OR REPLACE FUNCTION naksha_log_tail(OUT name text, OUT lo int8)
LANGUAGE sql STABLE SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT p.name, p.lo FROM naksha_partitions('naksha_tx') p
     WHERE p.hi = naksha_day_txn('9000-01-01');
END;

-- Make the partitions of the log for today and a week more, when there is none for tomorrow. It is
-- done ahead, in a short transaction of its own, by every library that opens or writes to the
-- storage and by maintenance. Returns the first day that has no partition of its own.
-- A day below the last partition is made alone: it is the past of a history import.
CREATE OR REPLACE FUNCTION naksha_prepare_log(now_ms int8 DEFAULT NULL) RETURNS date
LANGUAGE plpgsql SET search_path FROM CURRENT
SET lock_timeout = '100ms' AS $$
DECLARE
    first date := naksha_writing_day(now_ms);
    tail  record;
BEGIN
    SELECT * INTO tail FROM naksha_log_tail();
    IF naksha_day_txn(first + 1) < tail.lo THEN
        PERFORM naksha_ensure_day('naksha_tx', naksha_day_txn(first));
        RETURN naksha_txn_day(tail.lo);
    END IF;
    PERFORM naksha_lock_days('naksha_tx');
    SELECT * INTO tail FROM naksha_log_tail();
    IF tail.name IS NULL OR naksha_day_txn(first + 1) >= tail.lo THEN
        PERFORM naksha_extend_log(first, tail.name);
        SELECT * INTO tail FROM naksha_log_tail();
    END IF;
    RETURN naksha_txn_day(tail.lo);
END $$;

-- The days from `first` on for a week, and a new tail. All tables are made before the lock on the
-- log is taken, which is held for a moment; when it cannot be had at once the caller tries again
-- later, and the old tail goes on taking all rows. A tail that has rows stays, for the days up to
-- `first`.
CREATE OR REPLACE FUNCTION naksha_extend_log(first date, tail text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    used  bool := false;
    day   date := first;
    spans jsonb := '[]';
    span  record;
BEGIN
    IF tail IS NOT NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', tail) INTO used;
        day := CASE WHEN used THEN first + 1 ELSE day END;
    END IF;
    WHILE day <= first + 7 LOOP
        SELECT max(naksha_txn_day(p.hi)) AS to_day INTO span FROM naksha_partitions('naksha_tx') p
         WHERE p.lo <= naksha_day_txn(day) AND p.hi > naksha_day_txn(day)
           AND p.name IS DISTINCT FROM tail;
        IF span.to_day IS NULL THEN
            SELECT s.label, greatest(s.from_day, day) AS from_day, s.to_day INTO span
              FROM naksha_new_span('naksha_tx', day) s;
            PERFORM naksha_create_log_part(span.label, span.from_day, span.to_day);
            spans := spans || to_jsonb(span);
        END IF;
        day := span.to_day;
    END LOOP;
    PERFORM naksha_create_log_part('from_' || to_char(day, 'YYYY_MM_DD'), day, '9000-01-01');
    IF tail IS NOT NULL THEN
        PERFORM naksha_close_tail(tail, used, first + 1);
    END IF;
    PERFORM naksha_attach_partition('naksha_tx', 'naksha_tx_' || s.label, s.from_day, s.to_day)
       FROM jsonb_to_recordset(spans) AS s(label text, from_day date, to_day date);
    PERFORM naksha_attach_partition('naksha_tx', 'naksha_tx_from_' || to_char(day, 'YYYY_MM_DD'),
                                    day, '9000-01-01');
END $$;

CREATE OR REPLACE FUNCTION naksha_create_log_part(label text, from_day date, to_day date)
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT
BEGIN ATOMIC
    SELECT naksha_create_partition('naksha_tx', 'naksha_tx_' || label, from_day, to_day);
    SELECT naksha_create_log_indices('naksha_tx_' || label);
END;

-- Detaches the tail, or ends it before `stop` if it has rows.
CREATE OR REPLACE FUNCTION naksha_close_tail(tail text, used bool, stop date) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    is_used bool;
    lo      int8 := (SELECT t.lo FROM naksha_log_tail() t);
BEGIN
    EXECUTE format('LOCK TABLE ONLY naksha_tx, %I IN ACCESS EXCLUSIVE MODE', tail);
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', tail) INTO is_used;
    IF is_used <> used THEN
        PERFORM naksha_raise('55P03', 'The transaction log was written to while partitions were '
                             'created; retry later');
    ELSIF used THEN
        EXECUTE format('ALTER TABLE naksha_tx DETACH PARTITION %I', tail);
        PERFORM naksha_attach_partition('naksha_tx', tail, naksha_txn_day(lo), stop);
    ELSE
        EXECUTE format('DROP TABLE %I', tail);
    END IF;
END $$;

-- Creates today's partition of a collection's history before a transaction needs it, in a short
-- transaction of its own: until its end the creating transaction blocks all others that need it.
CREATE OR REPLACE FUNCTION naksha_prepare_history(
    collection_id text, overlay_number int4 DEFAULT 0, now_ms int8 DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT
SET lock_timeout = '2s' AS $$
BEGIN
    PERFORM naksha_ensure_day(c.id || '_hst', naksha_day_txn(naksha_writing_day(now_ms)))
       FROM naksha_collection c
      WHERE c.off_since IS NULL AND c.overlay = overlay_number
        AND (CASE WHEN overlay_number = 0 THEN c.id ELSE c.base END) = collection_id;
END $$;

-- Whether the partition exists or is not needed; null if it is not needed yet, because all features
-- of the collection will be new. (A longer partition is not searched for, which takes locks.)
CREATE OR REPLACE FUNCTION naksha_history_ready(
    collection_id text, overlay_number int4 DEFAULT 0, now_ms int8 DEFAULT NULL) RETURNS bool
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
    name    text := (SELECT c.id FROM naksha_collection c
                      WHERE c.off_since IS NULL AND c.overlay = overlay_number
                        AND (CASE WHEN overlay_number = 0 THEN c.id ELSE c.base END)
                            = collection_id);
    day     text := name || '_hst_' || to_char(naksha_writing_day(now_ms), 'YYYY_MM_DD');
    is_used bool;
BEGIN
    IF name IS NULL OR pg_partition_root(to_regclass(quote_ident(day))) IS NOT NULL THEN
        RETURN true;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %I) OR EXISTS (SELECT FROM %I)', name,
                   name || '_del') INTO is_used;
    RETURN CASE WHEN is_used THEN false END;
END $$;

SELECT naksha_prepare_log();
