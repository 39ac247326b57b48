-- What a node's queue holds: the first statements of a new one.

CREATE TABLE study (
    key TEXT PRIMARY KEY, state TEXT NOT NULL, generation INTEGER NOT NULL,
    sender TEXT NOT NULL, opened REAL NOT NULL, changed REAL NOT NULL, due REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, sendings INTEGER NOT NULL DEFAULT 0,
    returned INTEGER NOT NULL DEFAULT 0,
    computed REAL, settled REAL, reason TEXT NOT NULL DEFAULT '', hint TEXT NOT NULL DEFAULT ''
);
CREATE INDEX study_due ON study (state, due);
CREATE TABLE instance (
    key TEXT PRIMARY KEY, study TEXT NOT NULL, kind TEXT NOT NULL, bytes INTEGER NOT NULL,
    digest BLOB NOT NULL, came REAL NOT NULL,
    sender TEXT NOT NULL DEFAULT '', peer TEXT NOT NULL DEFAULT ''
);
CREATE INDEX instance_study ON instance (study);
-- An archive's promises that were asked for, by our number.
CREATE TABLE asked (number TEXT PRIMARY KEY, study TEXT NOT NULL, generation INTEGER NOT NULL);
-- Files of a watched folder, and series of a polled archive, that were taken.
CREATE TABLE exported (name TEXT PRIMARY KEY, size INTEGER NOT NULL, time INTEGER NOT NULL);
-- The hash of the audit trail's last line.
CREATE TABLE trail (one INTEGER PRIMARY KEY, sha256 TEXT NOT NULL);
