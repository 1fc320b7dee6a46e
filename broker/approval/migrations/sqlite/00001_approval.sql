-- +goose Up

-- seq is the order in which approvals were asked for.
CREATE TABLE approval (
    seq             INTEGER PRIMARY KEY,
    id              TEXT    NOT NULL UNIQUE,
    operation_id    TEXT    NOT NULL UNIQUE,   -- exactly one for each operation
    client_id       TEXT    NOT NULL,
    operation       TEXT    NOT NULL,
    reason          TEXT    NOT NULL,
    presentation    TEXT    NOT NULL,          -- JSON, for people; never authority
    plan_digest     TEXT    NOT NULL,          -- what is decided about
    state           TEXT    NOT NULL CHECK (state IN ('pending', 'approved', 'denied', 'expired', 'canceled')),
    revision        INTEGER NOT NULL CHECK (revision >= 1),
    created_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    closed_at       INTEGER NOT NULL DEFAULT 0,
    decided_by      TEXT    NOT NULL DEFAULT '',
    note            TEXT    NOT NULL DEFAULT '',
    decision_key    TEXT    NOT NULL DEFAULT '',
    decision_digest TEXT    NOT NULL DEFAULT ''  -- of the whole command that was carried out under the key
) STRICT;

CREATE INDEX approval_state ON approval (state, seq);

-- The nearest deadline.
CREATE INDEX approval_deadline ON approval (expires_at) WHERE state = 'pending';
