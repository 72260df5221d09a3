-- When retention next has something to do with an operation; null: never.
ALTER TABLE samekey_operations ADD COLUMN sweep_at bigint;

UPDATE samekey_operations SET sweep_at = CASE WHEN status = 0 AND method = '' THEN keep_name ELSE keep_body END
    WHERE state <> 0 AND owed = 0;

CREATE INDEX samekey_idx_sweep ON samekey_operations (sweep_at) WHERE sweep_at IS NOT NULL;

INSERT INTO samekey_schema (version) VALUES (2);
