-- +goose Up

-- A conversation (7).
CREATE TABLE conversation (
    conversation_id TEXT PRIMARY KEY,
    client_id       TEXT NOT NULL,
    user_id         TEXT NOT NULL,
    account         TEXT NOT NULL,    -- the account that it has used, which it belongs to since (7.2); '' before
    parent_id       TEXT NOT NULL,    -- the conversation that this Direct Conversation is linked to (7.10); '' for others
    status          TEXT NOT NULL CHECK (status IN ('working', 'idle', 'queued', 'closed')),
    responder       TEXT NOT NULL CHECK (responder IN ('agent', 'human')),
    context         TEXT NOT NULL,    -- JSON object: the User's situation, merged from all messages (7.4)
    asker           TEXT NOT NULL,    -- JSON object: who sent the newest message, as the guard saw it
    notes           TEXT,             -- JSON: the Clerk's own; NULL for none
    turn            INTEGER NOT NULL, -- counts the calls of the Clerk: only the latest may write its reply
    first_seq       INTEGER NOT NULL, -- the oldest event that is still kept
    last_seq        INTEGER NOT NULL, -- the newest event
    asked_seq       INTEGER NOT NULL, -- the newest message that says something
    answered_seq    INTEGER NOT NULL, -- the newest message that the last reply knew
    created         INTEGER NOT NULL,
    changed         INTEGER NOT NULL
) STRICT;
CREATE INDEX conversation_working ON conversation (conversation_id) WHERE status = 'working';
-- A parent has one open Direct Conversation at a time (7.10).
CREATE UNIQUE INDEX conversation_direct ON conversation (parent_id) WHERE parent_id <> '' AND status <> 'closed';

-- What happened in a conversation, in order (7.5). Its ID outlives its content as long as the conversation: a cursor of an
-- event that is no longer kept has expired, any other one that is not here is invalid.
CREATE TABLE event (
    conversation_id TEXT NOT NULL REFERENCES conversation,
    seq             INTEGER NOT NULL, -- from 1, without gaps
    event_id        TEXT NOT NULL UNIQUE,
    content         TEXT,             -- JSON object, as it is sent; NULL when it is no longer kept
    created         INTEGER NOT NULL,
    PRIMARY KEY (conversation_id, seq)
) STRICT;

-- An ID that a Personal Agent gave one of a User's messages, as long as its conversation is kept: what was sent with it, and
-- what was answered (7.3).
CREATE TABLE message (
    client_id       TEXT NOT NULL,
    user_id         TEXT NOT NULL,
    message_id      TEXT NOT NULL,
    digest          TEXT NOT NULL,    -- of its content and where it was sent
    conversation_id TEXT NOT NULL,
    status          TEXT NOT NULL,
    responder       TEXT NOT NULL,
    last_seq        INTEGER NOT NULL, -- the newest event of the conversation after it was accepted
    accepted        INTEGER NOT NULL,
    PRIMARY KEY (client_id, user_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_conversation ON message (conversation_id);
