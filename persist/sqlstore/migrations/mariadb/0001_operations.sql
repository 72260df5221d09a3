-- Operations of samekey. Times are nanoseconds since 1970 in UTC, the smallest bigint is no time.
CREATE TABLE IF NOT EXISTS samekey_schema (
    version integer NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

CREATE SEQUENCE IF NOT EXISTS samekey_token ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS samekey_operations (
    seq           bigint   NOT NULL AUTO_INCREMENT PRIMARY KEY,
    ref_hash      binary(32) NOT NULL, -- SHA-256 of scope and id, whose length an index could not bear
    scope         longblob NOT NULL,
    id            longblob NOT NULL,
    named         smallint NOT NULL,
    created       bigint   NOT NULL,
    op_key        longblob NOT NULL,
    method        longblob NOT NULL,
    target        longblob NOT NULL,
    header        longblob,
    omitted       longblob,
    body          longblob,
    fingerprint   binary(32) NOT NULL,
    key_life      bigint   NOT NULL,
    attempts      bigint   NOT NULL,
    first_sent    bigint   NOT NULL,
    seen          bigint   NOT NULL,
    not_before    bigint   NOT NULL,
    parked        smallint NOT NULL,
    poll_url      longblob NOT NULL,
    last_status   bigint   NOT NULL,
    last_error    longblob NOT NULL,
    state         smallint NOT NULL DEFAULT 0, -- pending, succeeded, rejected, conflicted, abandoned
    status        bigint   NOT NULL DEFAULT 0,
    answer_header longblob,
    answer_body   longblob,
    truncated     smallint NOT NULL DEFAULT 0,
    reason        longblob NOT NULL DEFAULT '',
    keep_body     bigint   NOT NULL DEFAULT -9223372036854775808,
    keep_name     bigint   NOT NULL DEFAULT -9223372036854775808,
    owed          smallint NOT NULL DEFAULT 0,
    owner         binary(16) NOT NULL, -- which call claimed or changed it last
    token         bigint   NOT NULL, -- of the latest claim
    held_until    bigint   NOT NULL, -- when that claim ends, by the clock of the database; 0: it has ended
    due_order     bigint,            -- created, while recovery may want it; else null
    UNIQUE KEY samekey_idx_ref (ref_hash),
    KEY samekey_idx_created (created, seq),
    KEY samekey_idx_due (due_order, seq)
) ENGINE = InnoDB;

INSERT IGNORE INTO samekey_schema (version) VALUES (1);
