-- Named pointers. Names and realms are binary, because every collation takes some texts for equal,
-- at the least those that differ in trailing spaces. An index entry of InnoDB may have 3,072 bytes.
CREATE TABLE IF NOT EXISTS naksha_pointer (
    realm    VARBINARY(512) NOT NULL,
    name     VARBINARY(512) NOT NULL,
    target   VARBINARY(1024) NOT NULL,
    created  BIGINT NOT NULL,
    epoch    BIGINT NOT NULL,
    previous VARBINARY(1024) NOT NULL,
    PRIMARY KEY (realm, name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC
