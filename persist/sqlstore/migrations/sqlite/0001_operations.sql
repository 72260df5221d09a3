-- Operations of samekey. Times are nanoseconds since 1970 in UTC, the smallest integer is no time.
CREATE TABLE samekey_schema (
    version integer NOT NULL PRIMARY KEY
);

-- The token of the next claim. The triggers below count it up.
CREATE TABLE samekey_token (
    next integer NOT NULL
);

INSERT INTO samekey_token (next) VALUES (1);

CREATE TABLE samekey_operations (
    seq           integer PRIMARY KEY,
    ref_hash      blob    NOT NULL UNIQUE, -- SHA-256 of scope and id
    scope         blob    NOT NULL,
    id            blob    NOT NULL,
    named         integer NOT NULL,
    created       integer NOT NULL,
    op_key        blob    NOT NULL,
    method        blob    NOT NULL,
    target        blob    NOT NULL,
    header        blob,
    omitted       blob,
    body          blob,
    fingerprint   blob    NOT NULL,
    key_life      integer NOT NULL,
    attempts      integer NOT NULL,
    first_sent    integer NOT NULL,
    seen          integer NOT NULL,
    not_before    integer NOT NULL,
    parked        integer NOT NULL,
    poll_url      blob    NOT NULL,
    last_status   integer NOT NULL,
    last_error    blob    NOT NULL,
    state         integer NOT NULL DEFAULT 0, -- pending, succeeded, rejected, conflicted, abandoned
    status        integer NOT NULL DEFAULT 0,
    answer_header blob,
    answer_body   blob,
    truncated     integer NOT NULL DEFAULT 0,
    reason        blob    NOT NULL DEFAULT x'',
    keep_body     integer NOT NULL DEFAULT -9223372036854775808,
    keep_name     integer NOT NULL DEFAULT -9223372036854775808,
    owed          integer NOT NULL DEFAULT 0,
    owner         blob    NOT NULL, -- which call claimed or changed it last
    token         integer NOT NULL, -- of the latest claim
    held_until    integer NOT NULL, -- when that claim ends; 0: it has ended
    due_order     integer           -- created, while recovery may want it; else null
);

CREATE INDEX samekey_idx_created ON samekey_operations (created, seq);

CREATE INDEX samekey_idx_due ON samekey_operations (due_order, seq) WHERE due_order IS NOT NULL;

CREATE TRIGGER samekey_idx_begun AFTER INSERT ON samekey_operations BEGIN UPDATE samekey_token SET next = next + 1; END;

CREATE TRIGGER samekey_idx_claimed AFTER UPDATE OF token ON samekey_operations BEGIN UPDATE samekey_token SET next = next + 1; END;

INSERT INTO samekey_schema (version) VALUES (1);
