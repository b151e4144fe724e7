-- The ids and numbers that the storage had before it was forked, oldest first: JSON, see
-- `naksha.model.identity`. The triggers of collections know them; `naksha.sqlite.files` makes those
-- of an older file again.
ALTER TABLE naksha_storage ADD COLUMN former TEXT NOT NULL DEFAULT '[]';
