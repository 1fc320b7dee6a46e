-- +goose Up

-- What changes about an operation, and what lists show. seq is the order of submission.
CREATE TABLE operation (
    seq            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    client_id      TEXT    NOT NULL,
    request_id     TEXT    NOT NULL,
    request_digest TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    effect         TEXT    NOT NULL CHECK (effect IN ('read', 'keyed', 'change')),
    title          TEXT    NOT NULL,
    summary        TEXT    NOT NULL,
    plan_digest    TEXT    NOT NULL,           -- '' if denied before there was a plan
    approval_id    TEXT    NOT NULL,           -- '' if no approval was asked for
    state          TEXT    NOT NULL CHECK (state IN
        ('pending', 'approved', 'executing', 'succeeded', 'failed', 'denied', 'expired', 'canceled')),
    revision       INTEGER NOT NULL CHECK (revision >= 1),
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    terminal_at    INTEGER NOT NULL,           -- 0 until the state is terminal
    error_code     TEXT    NOT NULL DEFAULT '',
    error_message  TEXT    NOT NULL DEFAULT '',
    result_cut     INTEGER NOT NULL DEFAULT 0,
    result         TEXT,                       -- large, so last: lists stop reading before it
    UNIQUE (client_id, request_id),
    CHECK ((terminal_at <> 0) = (state IN ('succeeded', 'failed', 'denied', 'expired', 'canceled')))
) STRICT;

CREATE INDEX operation_client ON operation (client_id, seq);
CREATE INDEX operation_client_state ON operation (client_id, state, seq);

-- What a new process has to take up.
CREATE INDEX operation_unfinished ON operation (seq) WHERE state IN ('approved', 'executing');

-- What was submitted and what was planned. Never updated, so that no change of state copies it.
CREATE TABLE operation_request (
    seq       INTEGER PRIMARY KEY REFERENCES operation (seq),
    target    TEXT NOT NULL,
    arguments TEXT NOT NULL,
    reason    TEXT NOT NULL,
    rulings   TEXT NOT NULL,                   -- JSON array: what policy answered
    plan      TEXT NOT NULL                    -- what plan_digest is the digest of, '' if there is none
) STRICT;

-- One row for each revision. Never updated.
CREATE TABLE operation_event (
    seq      INTEGER NOT NULL REFERENCES operation (seq),
    revision INTEGER NOT NULL,
    kind     TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    actor    TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    detail   TEXT    NOT NULL,
    PRIMARY KEY (seq, revision)
) STRICT, WITHOUT ROWID;
