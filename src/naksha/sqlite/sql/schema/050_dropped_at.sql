-- A dropped collection has a mark of its own; `delete_at` of a live one schedules its removal.
-- Until now every collection with a time to delete it was dropped.

ALTER TABLE naksha_collection ADD COLUMN dropped_at INTEGER NOT NULL DEFAULT 0;
UPDATE naksha_shell SET managed = 1;
UPDATE naksha_collection AS c
   SET dropped_at = coalesce((SELECT max(t.ts) FROM naksha_tx t WHERE t.txn = c.txn), 1)
 WHERE delete_at <> 0;
UPDATE naksha_shell SET managed = 0;
