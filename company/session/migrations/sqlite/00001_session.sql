-- +goose Up

-- One User's activity at this Company through one Personal Agent (4). A row goes some time after the Session has ended:
-- an ended Session and one that never was are answered alike (4.2).
CREATE TABLE session (
    session_id       TEXT PRIMARY KEY,
    client_id        TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    account          TEXT NOT NULL,    -- the only account it can ever be signed in to, kept after sign-out (4.4); '' before
    account_token_id TEXT NOT NULL,    -- the Account Token that it is signed in with now; '' when signed out
    started          INTEGER NOT NULL,
    ends             INTEGER NOT NULL  -- moved on whenever a token is issued for it
) STRICT, WITHOUT ROWID;
CREATE INDEX session_ends ON session (ends);
CREATE INDEX session_account_token ON session (account_token_id) WHERE account_token_id <> '';

-- A Session Token (4.3), with the Session as it was when the token was issued (4.4). Signing out empties account and scope.
CREATE TABLE session_token (
    digest           BLOB PRIMARY KEY, -- SHA-256 of the token, which itself is kept nowhere
    session_id       TEXT NOT NULL,
    key_thumbprint   TEXT NOT NULL,    -- RFC 7638, of the key the token is bound to; '' for a Bearer token
    resource         TEXT NOT NULL,    -- RFC 8707; '' for the Company's services in general
    account          TEXT NOT NULL,    -- '' when signed out
    scope            TEXT NOT NULL,
    account_token_id TEXT NOT NULL,    -- the Account Token it was got with; '' when none
    agent_name       TEXT NOT NULL,
    agent_extensions TEXT NOT NULL,    -- name=version, with a space between them
    expires          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX session_token_expires ON session_token (expires);
CREATE INDEX session_token_account_token ON session_token (account_token_id) WHERE account_token_id <> '';

-- A User's approval for a Personal Agent to use one account (4.8).
CREATE TABLE account_token (
    account_token_id TEXT PRIMARY KEY,
    digest           BLOB NOT NULL UNIQUE, -- SHA-256 of the token, which itself is kept nowhere
    client_id        TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    account          TEXT NOT NULL,
    scope            TEXT NOT NULL,
    issued           INTEGER NOT NULL,
    expires          INTEGER NOT NULL      -- 0: only revocation ends it
) STRICT, WITHOUT ROWID;
CREATE INDEX account_token_expires ON account_token (expires) WHERE expires <> 0;

-- A jti that was accepted and must not be again (4.2, 4.3), until what carried it is too old anyway.
CREATE TABLE spent_jti (
    digest  BLOB PRIMARY KEY,          -- SHA-256 of whose it is and the jti
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX spent_jti_expires ON spent_jti (expires);
