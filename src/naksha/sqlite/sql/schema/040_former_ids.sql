-- The ids and numbers that the storage had before it was forked, oldest first: JSON, see
-- `naksha.model.identity.storage_identity`.
ALTER TABLE naksha_storage ADD COLUMN former TEXT NOT NULL DEFAULT '[]';
