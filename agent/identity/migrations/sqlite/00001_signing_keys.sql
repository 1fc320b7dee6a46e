-- +goose Up
CREATE TABLE signing_keys (
    id          TEXT PRIMARY KEY,     -- the kid, which is published
    signs_from  INTEGER NOT NULL,
    private_key BLOB NOT NULL         -- sealed PKCS #8
) STRICT;
