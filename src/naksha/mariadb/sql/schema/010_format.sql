-- One row: the version of the tables. A program that finds a greater one than it knows stays away.
CREATE TABLE IF NOT EXISTS naksha_format (
    only_row TINYINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
    version  INT NOT NULL
) ENGINE = InnoDB
