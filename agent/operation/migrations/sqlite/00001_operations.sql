-- +goose Up
-- Operations that are not final. Names are keyed hashes, content is sealed.
CREATE TABLE operations (
    id        TEXT PRIMARY KEY,              -- of the owner and the operation ID
    owner     TEXT NOT NULL,                 -- of issuer and person
    origin    TEXT NOT NULL,                 -- of the owner and what led to the operation; '' if not known
    confirmed INTEGER NOT NULL DEFAULT 0,    -- whether a confirmation may have arrived
    content   BLOB NOT NULL                  -- the operation as it was last seen, and when to read it again
) STRICT;
CREATE INDEX operations_owner ON operations (owner);
CREATE INDEX operations_origin ON operations (origin) WHERE origin <> '';
