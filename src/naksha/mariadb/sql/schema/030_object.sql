-- Objects, the large ones in several parts. A value that does not fit its page is kept outside of
-- the primary key, so a scan does not read it.
CREATE TABLE IF NOT EXISTS naksha_object (
    realm      VARBINARY(512) NOT NULL,
    id         BIGINT NOT NULL,
    part       INT NOT NULL,
    parts      INT NOT NULL,
    type       VARBINARY(32) NOT NULL,
    token      VARBINARY(512) NULL,
    created_us BIGINT NOT NULL,
    value      MEDIUMBLOB NOT NULL,
    PRIMARY KEY (realm, id, part)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
