-- +goose Up

-- Whose database this is. An issuer is exactly one Company (3.2), so its database is no other's: a token that lies in it is
-- good at this Company alone.
CREATE TABLE company (
    only   INTEGER PRIMARY KEY CHECK (only = 1),
    issuer TEXT NOT NULL
) STRICT;
