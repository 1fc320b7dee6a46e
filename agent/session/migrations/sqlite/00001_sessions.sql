-- +goose Up
-- Every id is a keyed hash or random, every content is sealed.
CREATE TABLE users (
    id      TEXT PRIMARY KEY,    -- of issuer and person
    content BLOB NOT NULL        -- issuer, person, User ID, DPoP key
) STRICT;

CREATE TABLE sessions (
    id      TEXT PRIMARY KEY,    -- of issuer, person and name
    user_id TEXT NOT NULL REFERENCES users (id),
    content BLOB NOT NULL        -- name, session_id, account, scope, tokens
) STRICT;

CREATE TABLE accounts (
    id      TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id),
    content BLOB NOT NULL        -- Account Token, scope, expiry
) STRICT;
CREATE INDEX accounts_user ON accounts (user_id);

CREATE TABLE limits (
    id    TEXT PRIMARY KEY,      -- of a URL
    until INTEGER NOT NULL
) STRICT;
