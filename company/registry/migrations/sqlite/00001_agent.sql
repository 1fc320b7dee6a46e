-- +goose Up

-- A Personal Agent that has authenticated here, or that somebody decided on (4.1). Its document and keys are not kept: they
-- are fetched, and cached in memory.
CREATE TABLE agent (
    client_id  TEXT PRIMARY KEY,
    name       TEXT NOT NULL,    -- client_name when last seen; '' before
    status     TEXT NOT NULL CHECK (status IN ('known', 'allowed', 'blocked')),
    first_seen INTEGER NOT NULL, -- 0: decided on before it was seen
    last_seen  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX agent_first_seen ON agent (first_seen);
