-- Oncekey's tables for SQLite, schema version 1.
-- Times are milliseconds since 1970 on the machine's clock. Every statement may be run again.

-- What belongs to the database as a whole: the version of this schema, and the secret that ids and fingerprints are
-- keyed with.
CREATE TABLE IF NOT EXISTS oncekey_meta (
  name  TEXT PRIMARY KEY,
  value BLOB NOT NULL
);
INSERT INTO oncekey_meta (name, value) VALUES ('schema', '1') ON CONFLICT (name) DO NOTHING;

-- Operations that are not finished. One row per key from the first claim to the response; the reaper never comes here.
-- A finished operation moves to an answer table in the transaction that finishes it.
CREATE TABLE IF NOT EXISTS oncekey_operation (
  id              BLOB    PRIMARY KEY NOT NULL, -- keyed hash of principal, method, path and key
  fingerprint     BLOB    NOT NULL,             -- keyed hash of what the request asks for
  operation       TEXT    NOT NULL,
  recovery_point  TEXT    NOT NULL,
  fence           INTEGER NOT NULL,             -- grows with every claim and every phase, from the clock on
  lease_until     INTEGER NOT NULL,             -- the owner's; 0 when it has none
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

-- Jobs staged by transactions and not yet accepted by their sink. Deleted by id, one by one, when they are.
CREATE TABLE IF NOT EXISTS oncekey_job (
  id              INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice, also after the newest was deleted
  sink            TEXT    NOT NULL,
  name            TEXT    NOT NULL,
  args            BLOB    NOT NULL,
  staged_at       INTEGER NOT NULL,
  attempts        INTEGER NOT NULL DEFAULT 0, -- refusals by the sink
  next_attempt_at INTEGER NOT NULL,
  claimed_until   INTEGER NOT NULL DEFAULT 0, -- an enqueuer has it until then
  claim           INTEGER NOT NULL DEFAULT 0, -- names that enqueuer's batch
  state           TEXT    NOT NULL DEFAULT 'staged' CHECK (state IN ('staged', 'dead')),
  dead_at         INTEGER,
  last_error      TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS oncekey_job_waiting ON oncekey_job (sink, id) WHERE state = 'staged';
CREATE INDEX IF NOT EXISTS oncekey_job_dead ON oncekey_job (id) WHERE state = 'dead';

-- Messages that were processed, by consumer: one table per bucket of time in which they are forgotten together, named
-- oncekey_inbox_WIDTH_INDEX, shown together by the view oncekey_inbox; as with the answers.
CREATE TABLE IF NOT EXISTS oncekey_inbox_none (
  consumer   BLOB    NOT NULL,
  message_id BLOB    NOT NULL,
  done_at    INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS oncekey_inbox AS SELECT * FROM oncekey_inbox_none;
