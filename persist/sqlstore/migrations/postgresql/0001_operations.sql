-- Operations of samekey. Times are nanoseconds since 1970 in UTC, the smallest bigint is no time.
CREATE TABLE samekey_schema (
    version integer NOT NULL PRIMARY KEY
);

CREATE SEQUENCE samekey_token;

CREATE TABLE samekey_operations (
    ref_hash      bytea    NOT NULL PRIMARY KEY, -- SHA-256 of scope and id, whose length an index could not bear
    seq           bigint   NOT NULL GENERATED ALWAYS AS IDENTITY,
    scope         bytea    NOT NULL,
    id            bytea    NOT NULL,
    named         smallint NOT NULL,
    created       bigint   NOT NULL,
    op_key        bytea    NOT NULL,
    method        bytea    NOT NULL,
    target        bytea    NOT NULL,
    header        bytea,
    omitted       bytea,
    body          bytea,
    fingerprint   bytea    NOT NULL,
    key_life      bigint   NOT NULL,
    attempts      bigint   NOT NULL,
    first_sent    bigint   NOT NULL,
    seen          bigint   NOT NULL,
    not_before    bigint   NOT NULL,
    parked        smallint NOT NULL,
    poll_url      bytea    NOT NULL,
    last_status   bigint   NOT NULL,
    last_error    bytea    NOT NULL,
    state         smallint NOT NULL DEFAULT 0, -- pending, succeeded, rejected, conflicted, abandoned
    status        bigint   NOT NULL DEFAULT 0,
    answer_header bytea,
    answer_body   bytea,
    truncated     smallint NOT NULL DEFAULT 0,
    reason        bytea    NOT NULL DEFAULT '',
    keep_body     bigint   NOT NULL DEFAULT (-9223372036854775808),
    keep_name     bigint   NOT NULL DEFAULT (-9223372036854775808),
    owed          smallint NOT NULL DEFAULT 0,
    owner         bytea    NOT NULL, -- which call claimed or changed it last
    token         bigint   NOT NULL, -- of the latest claim
    held_until    bigint   NOT NULL, -- when that claim ends, by the clock of the database; 0: it has ended
    due_order     bigint             -- created, while recovery may want it; else null
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05);

CREATE INDEX samekey_idx_created ON samekey_operations (created, seq);

CREATE INDEX samekey_idx_due ON samekey_operations (due_order, seq) WHERE due_order IS NOT NULL;

INSERT INTO samekey_schema (version) VALUES (1);
