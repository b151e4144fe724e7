-- The ids and numbers that a storage had before it was forked.
ALTER TABLE naksha_storage ADD COLUMN IF NOT EXISTS former jsonb NOT NULL DEFAULT '[]';
