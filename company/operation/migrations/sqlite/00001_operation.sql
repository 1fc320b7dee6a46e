-- +goose Up

-- An action that the Company has proposed (Operations 3). It stays at least until it is final.
CREATE TABLE operation (
    operation_id    TEXT PRIMARY KEY,
    client_id       TEXT NOT NULL,
    user_id         TEXT NOT NULL,
    session_id      TEXT NOT NULL,    -- the Session it was proposed in
    account         TEXT NOT NULL,    -- that Session's account; '': proposed signed out, for that Session alone (3.2)
    conversation_id TEXT NOT NULL,    -- where it came up; '' for another channel
    action_key      TEXT NOT NULL,    -- the Company's name of the action (4)
    state           TEXT NOT NULL CHECK (state IN ('proposed', 'in_progress', 'succeeded', 'failed', 'cancelled', 'expired')),
    revision        INTEGER NOT NULL, -- the latest
    attempt         INTEGER NOT NULL, -- the latest; 0 before the first
    stop_requested  INTEGER NOT NULL, -- when it was cancelled while in progress; 0 if it was not
    result          TEXT,             -- JSON object; NULL until final
    created         INTEGER NOT NULL,
    changed         INTEGER NOT NULL
) STRICT;
CREATE INDEX operation_in_progress ON operation (operation_id) WHERE state = 'in_progress';
CREATE INDEX operation_conversation ON operation (conversation_id, created) WHERE conversation_id <> '';
-- One open operation for an action of an owner, whichever channels propose it at once.
CREATE UNIQUE INDEX operation_open ON operation
    (client_id, user_id, action_key, account, CASE account WHEN '' THEN session_id ELSE '' END)
    WHERE state IN ('proposed', 'in_progress');

-- One version of the terms. Written once, never changed (3.1).
CREATE TABLE operation_revision (
    operation_id           TEXT NOT NULL REFERENCES operation,
    revision               INTEGER NOT NULL, -- from 1
    summary                TEXT NOT NULL,
    terms                  TEXT,             -- canonical JSON object; NULL for none
    user_approval_required INTEGER NOT NULL,
    url                    TEXT NOT NULL,    -- '' for none
    expires                INTEGER NOT NULL, -- the last moment to confirm it
    scope                  TEXT NOT NULL,    -- scopes needed to confirm it
    digest                 TEXT NOT NULL,    -- SHA-256 of the canonical form of everything above but scope
    created                INTEGER NOT NULL,
    PRIMARY KEY (operation_id, revision)
) STRICT;

-- What the Personal Agent stated, once for each operation: who, in which Session and account, with which key, that the User
-- approved which revision, when and how (8).
CREATE TABLE operation_confirmation (
    operation_id   TEXT PRIMARY KEY REFERENCES operation,
    revision       INTEGER NOT NULL,
    digest         TEXT NOT NULL,    -- of that revision: what is performed has it
    approved_by    TEXT NOT NULL CHECK (approved_by IN ('user', 'standing_permission')),
    confirmed      INTEGER NOT NULL,
    client_id      TEXT NOT NULL,
    user_id        TEXT NOT NULL,
    session_id     TEXT NOT NULL,
    account        TEXT NOT NULL,    -- '' when signed out
    key_thumbprint TEXT NOT NULL     -- RFC 7638, of the key that signed the request's DPoP Proof
) STRICT;

-- An attempt to perform a confirmed operation (6). The row is committed before the Performer is called, and gets its outcome
-- afterwards; the attempt's number is the fence that keeps a late answer from being taken for that of a newer attempt.
CREATE TABLE operation_attempt (
    operation_id TEXT NOT NULL REFERENCES operation,
    attempt      INTEGER NOT NULL, -- from 1
    worker       TEXT NOT NULL,    -- the run of the service that started it
    outcome      TEXT NOT NULL CHECK (outcome IN ('started', 'succeeded', 'failed', 'stopped', 'not_started')),
    lookups      INTEGER NOT NULL, -- how often its outcome was asked for and stayed unknown
    due          INTEGER NOT NULL, -- when the next step is due; 0 for now
    started      INTEGER NOT NULL,
    ended        INTEGER NOT NULL, -- 0 until the outcome is known
    PRIMARY KEY (operation_id, attempt)
) STRICT;
