-- Oncekey's tables for SQLite, part 1: operations and their answers.
-- Times are milliseconds since 1970 on the machine's clock. Every statement may be run again.

-- What belongs to the database as a whole: the secret that ids and fingerprints are keyed with.
CREATE TABLE IF NOT EXISTS oncekey_meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
);

-- Operations that are not finished. One row per key from the first claim to the response; the reaper never comes here.
-- A finished operation moves to an answer table in the transaction that finishes it.
CREATE TABLE IF NOT EXISTS oncekey_operation (
  id              BLOB    PRIMARY KEY NOT NULL, -- keyed hash of principal, method, path and key
  fingerprint     BLOB    NOT NULL,             -- keyed hash of what the request asks for
  operation       TEXT    NOT NULL,
  recovery_point  TEXT    NOT NULL,
  fence           INTEGER NOT NULL,             -- grows with every claim and every phase, from the clock on
  lease_until     INTEGER NOT NULL,             -- the owner's; 0 when nobody owns it
  identity        BLOB    NOT NULL,             -- random; foreign calls' keys are derived from it
  notes           BLOB    NOT NULL,
  principal       TEXT    NOT NULL,
  key             TEXT    NOT NULL,
  method          TEXT    NOT NULL,
  path            TEXT    NOT NULL,
  body            BLOB    NOT NULL,
  content_type    TEXT    NOT NULL,
  first_received  INTEGER NOT NULL,
  reached_at      INTEGER NOT NULL,             -- when it came to its recovery point
  attempts        INTEGER NOT NULL,             -- the completer's
  next_attempt_at INTEGER NOT NULL,
  dead_at         INTEGER,                      -- a dead letter since; an operator restarts it
  last_error      TEXT    NOT NULL
);
CREATE INDEX IF NOT EXISTS oncekey_operation_by_age ON oncekey_operation (first_received, id);

-- Answers to finished operations: one table per bucket of time in which they expire together, named
-- oncekey_answer_WIDTH_INDEX, all of them with the columns of this one, which stays empty. The view oncekey_answer is
-- made anew whenever a bucket comes or goes and shows all of them.
CREATE TABLE IF NOT EXISTS oncekey_answer_none (
  id             BLOB    PRIMARY KEY NOT NULL,
  fingerprint    BLOB    NOT NULL,
  operation      TEXT    NOT NULL,
  fence          INTEGER NOT NULL,
  first_received INTEGER NOT NULL,
  finished_at    INTEGER NOT NULL,
  expires_at     INTEGER NOT NULL, -- from this instant on it counts as absent
  response       BLOB    NOT NULL  -- status, headers and body: docs/RECORD_FORMAT.md
);
CREATE VIEW IF NOT EXISTS oncekey_answer AS SELECT * FROM oncekey_answer_none;

-- Which buckets exist, and when everything in them has expired.
CREATE TABLE IF NOT EXISTS oncekey_bucket (
  kind    TEXT    NOT NULL, -- answer, inbox
  name    TEXT    NOT NULL,
  ends_at INTEGER NOT NULL,
  PRIMARY KEY (kind, name)
);
