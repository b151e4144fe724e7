-- Indices for the filters of the log; see naksha.psql.schema.online.
CREATE INDEX naksha_tx_author_txn ON naksha_tx (author, txn);
CREATE INDEX naksha_tx_app_id_txn ON naksha_tx (app_id, txn);
CREATE INDEX naksha_tx_overlay_txn ON naksha_tx (overlay, txn) WHERE overlay <> 0;
CREATE INDEX naksha_tx_messages ON naksha_tx (txn) WHERE action = 'MESSAGE';
