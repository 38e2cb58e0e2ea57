-- MySQL commits each DDL statement by itself, so a migration that stopped half-way is run
-- again from its start: every statement must be one that may be repeated.

-- +goose NO TRANSACTION
-- +goose Up

-- identity: random; the owner mark in the bucket holds it, too.
CREATE TABLE IF NOT EXISTS sources (
    id       INT UNSIGNED NOT NULL AUTO_INCREMENT,
    name     VARCHAR(64) NOT NULL,
    identity CHAR(36) NOT NULL,
    PRIMARY KEY (id),
    UNIQUE KEY name (name)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- generation, copy_token, row_count and bytes are of the newest committed copy;
-- live_generation and live_token of the verified one that serves reads.
CREATE TABLE IF NOT EXISTS slices (
    id              BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    source_id       INT UNSIGNED NOT NULL,
    day             DATE NOT NULL,
    db_name         VARCHAR(64) NOT NULL,
    table_name      VARCHAR(64) NOT NULL,
    lo              BIGINT UNSIGNED NOT NULL,
    hi              BIGINT UNSIGNED NOT NULL,
    state           VARCHAR(16) NOT NULL,
    reason          VARCHAR(16) NOT NULL DEFAULT '',
    generation      INT UNSIGNED NOT NULL DEFAULT 0,
    copy_token      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    live_generation INT UNSIGNED NOT NULL DEFAULT 0,
    live_token      BIGINT UNSIGNED NOT NULL DEFAULT 0,
    row_count       BIGINT UNSIGNED NOT NULL DEFAULT 0,
    bytes           BIGINT UNSIGNED NOT NULL DEFAULT 0,
    failed          TINYINT UNSIGNED NOT NULL DEFAULT 0,
    error           TEXT NULL,
    tries           INT UNSIGNED NOT NULL DEFAULT 0,
    staging         VARCHAR(64) NOT NULL DEFAULT '',
    verified_at     DATETIME(6) NULL,
    purged_at       DATETIME(6) NULL,
    lease_token     BIGINT UNSIGNED NOT NULL DEFAULT 0,
    lease_until     DATETIME(6) NULL,
    lease_owner     VARCHAR(255) NOT NULL DEFAULT '',
    PRIMARY KEY (id),
    UNIQUE KEY slice (source_id, day, db_name, table_name),
    KEY state (source_id, state, day)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS table_schemas (
    hash       CHAR(32) NOT NULL,
    definition MEDIUMTEXT NOT NULL,
    PRIMARY KEY (hash)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- A generation of a slice. Its chunks, objects and segments are keyed by the lease token it
-- was committed under, not by its generation: so what a dead worker's unfinished transaction
-- has inserted never stands in its successor's way.
CREATE TABLE IF NOT EXISTS copies (
    slice_id      BIGINT UNSIGNED NOT NULL,
    generation    INT UNSIGNED NOT NULL,
    token         BIGINT UNSIGNED NOT NULL,
    attempt       VARCHAR(64) NOT NULL,
    schema_hash   CHAR(32) NOT NULL,
    show_create   MEDIUMTEXT NOT NULL,
    copied_at     DATETIME(6) NOT NULL,
    row_count     BIGINT UNSIGNED NOT NULL,
    bytes         BIGINT UNSIGNED NOT NULL,
    record_key    VARBINARY(1024) NOT NULL,
    record_sum    BINARY(32) NOT NULL,
    committed_at  DATETIME(6) NOT NULL,
    verified_at   DATETIME(6) NULL,
    superseded_at DATETIME(6) NULL,
    PRIMARY KEY (slice_id, generation)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- staged: the state became "deleting" because the whole partition was about to be exchanged.
CREATE TABLE IF NOT EXISTS chunks (
    slice_id     BIGINT UNSIGNED NOT NULL,
    token        BIGINT UNSIGNED NOT NULL,
    seq          INT UNSIGNED NOT NULL,
    from_id      BIGINT UNSIGNED NOT NULL,
    to_id        BIGINT UNSIGNED NOT NULL,
    warm_hi      BIGINT UNSIGNED NOT NULL,
    warm_lo      BIGINT UNSIGNED NOT NULL,
    warm_rows    BIGINT UNSIGNED NOT NULL,
    carried_hi   BIGINT UNSIGNED NOT NULL,
    carried_lo   BIGINT UNSIGNED NOT NULL,
    carried_rows BIGINT UNSIGNED NOT NULL,
    state        VARCHAR(16) NOT NULL,
    staged       TINYINT UNSIGNED NOT NULL DEFAULT 0,
    PRIMARY KEY (slice_id, token, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- name is the key without the prefix that all objects of the copy share, or the whole key
-- after a slash. file is segment.File in the binary form of file.go.
CREATE TABLE IF NOT EXISTS objects (
    slice_id BIGINT UNSIGNED NOT NULL,
    token    BIGINT UNSIGNED NOT NULL,
    seq      INT UNSIGNED NOT NULL,
    name     VARBINARY(1025) NOT NULL,
    file     MEDIUMBLOB NOT NULL,
    PRIMARY KEY (slice_id, token, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The two page indexes answer "the segments around a cursor, nearest first", one for each
-- direction; see Segments. DESC, so that page_before is read forwards: backwards, neither
-- server tries min_cursor inside the index, and each row passed over is a look-up.
CREATE TABLE IF NOT EXISTS segments (
    slice_id     BIGINT UNSIGNED NOT NULL,
    token        BIGINT UNSIGNED NOT NULL,
    object_seq   INT UNSIGNED NOT NULL,
    seq          INT UNSIGNED NOT NULL,
    source_id    INT UNSIGNED NOT NULL,
    conversation VARBINARY(255) NOT NULL,
    min_cursor   BIGINT UNSIGNED NOT NULL,
    max_cursor   BIGINT UNSIGNED NOT NULL,
    first_row    BIGINT UNSIGNED NOT NULL,
    row_count    BIGINT UNSIGNED NOT NULL,
    first_group  INT UNSIGNED NOT NULL,
    last_group   INT UNSIGNED NOT NULL,
    sum_hi       BIGINT UNSIGNED NOT NULL,
    sum_lo       BIGINT UNSIGNED NOT NULL,
    PRIMARY KEY (slice_id, token, object_seq, seq),
    KEY page_before (source_id, conversation, max_cursor DESC, min_cursor DESC),
    KEY page_after (source_id, conversation, min_cursor, max_cursor)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS holds (
    id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    source_id   INT UNSIGNED NOT NULL,
    kind        VARCHAR(16) NOT NULL,
    subject     VARBINARY(600) NOT NULL,
    reason      TEXT NOT NULL,
    placed_by   VARCHAR(255) NOT NULL,
    placed_at   DATETIME(6) NOT NULL,
    released_by VARCHAR(255) NOT NULL DEFAULT '',
    released_at DATETIME(6) NULL,
    PRIMARY KEY (id),
    KEY subject (source_id, kind, subject)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE IF NOT EXISTS runs (
    id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
    source_id  INT UNSIGNED NOT NULL,
    job        VARCHAR(32) NOT NULL,
    host       VARCHAR(255) NOT NULL,
    started_at DATETIME(6) NOT NULL,
    ended_at   DATETIME(6) NULL,
    outcome    VARCHAR(32) NOT NULL DEFAULT '',
    report     MEDIUMTEXT NULL,
    PRIMARY KEY (id),
    KEY job (source_id, job, id)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- +goose Down

SELECT 1;
