-- +goose Up
CREATE TABLE key_check (
    id     INTEGER PRIMARY KEY,
    sealed BLOB NOT NULL
) STRICT;
