-- What a node's queue holds. Each start checks every row against these words, so they say all that
-- a row must be; the queue's module fills in the form of a key and the states.

-- `seal` is a checksum of key, state and `settled` of a study that is done or failed.
CREATE TABLE study (
    key TEXT PRIMARY KEY NOT NULL CHECK (key GLOB '{key}'),
    state TEXT NOT NULL CHECK (state IN {states}), generation INTEGER NOT NULL CHECK (generation BETWEEN 0 AND {most}),
    sender TEXT NOT NULL, opened REAL NOT NULL, changed REAL NOT NULL, due REAL NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0 CHECK (attempts BETWEEN 0 AND {most}),
    sendings INTEGER NOT NULL DEFAULT 0 CHECK (sendings BETWEEN 0 AND {most}),
    returned INTEGER NOT NULL DEFAULT 0 CHECK (returned BETWEEN 0 AND {most}),
    computed REAL, settled REAL, reason TEXT NOT NULL DEFAULT '', hint TEXT NOT NULL DEFAULT '',
    seal TEXT NOT NULL DEFAULT ''
) STRICT;
DROP INDEX IF EXISTS study_due;  -- of an earlier version's table
CREATE INDEX study_due ON study (state, due);
CREATE TABLE instance (
    key TEXT PRIMARY KEY NOT NULL CHECK (key GLOB '{key}'),
    study TEXT NOT NULL CHECK (study GLOB '{key}'), kind TEXT NOT NULL,
    bytes INTEGER NOT NULL CHECK (bytes BETWEEN 0 AND {most}),
    digest BLOB NOT NULL, came REAL NOT NULL,
    sender TEXT NOT NULL DEFAULT '', peer TEXT NOT NULL DEFAULT ''
) STRICT;
DROP INDEX IF EXISTS instance_study;
CREATE INDEX instance_study ON instance (study);
-- An archive's promises that were asked for, by our number.
CREATE TABLE asked (
    number TEXT PRIMARY KEY NOT NULL, study TEXT NOT NULL,
    generation INTEGER NOT NULL CHECK (generation BETWEEN 0 AND {most})
) STRICT;
-- Files of a watched folder, and series of a polled archive, that were taken.
CREATE TABLE exported (
    name TEXT PRIMARY KEY NOT NULL, size INTEGER NOT NULL, time INTEGER NOT NULL
) STRICT;
-- The hash of the audit trail's last line.
CREATE TABLE trail (one INTEGER PRIMARY KEY, sha256 TEXT NOT NULL) STRICT;
-- By what the secret is known again that the keys were made with.
CREATE TABLE secret (one INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL) STRICT;
