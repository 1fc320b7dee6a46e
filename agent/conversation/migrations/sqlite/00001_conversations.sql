-- +goose Up
CREATE TABLE conversations (
    id              TEXT PRIMARY KEY,    -- random
    owner           TEXT NOT NULL,       -- keyed hash of issuer and person
    opened_at       INTEGER NOT NULL,    -- when the agent came to know of it
    name            TEXT UNIQUE,         -- keyed hash of the owner and the Conversation ID; NULL until it has one
    conversation_id BLOB,                -- sealed, as are the next two
    cursor          BLOB,                -- of the last event that was handled
    pending         BLOB                 -- a message that is not known to have arrived
) STRICT;
CREATE INDEX conversations_pending ON conversations (owner) WHERE pending IS NOT NULL;
CREATE INDEX conversations_latest ON conversations (owner, opened_at) WHERE conversation_id IS NOT NULL;

CREATE TABLE handled (
    event        TEXT PRIMARY KEY,       -- keyed hash of the conversation and the event ID
    conversation TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE
) STRICT;
CREATE INDEX handled_conversation ON handled (conversation);
