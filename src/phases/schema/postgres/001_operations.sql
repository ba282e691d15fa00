-- Oncekey's tables for PostgreSQL, part 1: operations and their answers.
-- Times are milliseconds since 1970 on the server's clock. Every statement may be run again.

-- What belongs to the database as a whole: the secret that ids and fingerprints are keyed with.
CREATE TABLE IF NOT EXISTS oncekey_meta (
  name  text  PRIMARY KEY,
  value bytea NOT NULL
);

-- Operations that are not finished. One row per key from the first claim to the response; the reaper never comes here.
-- A finished operation moves to oncekey_answer in the transaction that finishes it.
CREATE TABLE IF NOT EXISTS oncekey_operation (
  id              bytea   PRIMARY KEY, -- keyed hash of principal, method, path and key
  fingerprint     bytea   NOT NULL,    -- keyed hash of what the request asks for
  operation       text    NOT NULL,
  recovery_point  text    NOT NULL,
  fence           bigint  NOT NULL,    -- grows with every claim and every phase, from the clock on
  lease_until     bigint  NOT NULL,    -- the owner's; 0 when nobody owns it
  identity        bytea   NOT NULL,    -- random; foreign calls' keys are derived from it
  notes           bytea   NOT NULL,
  principal       text    NOT NULL,
  key             text    NOT NULL,
  method          text    NOT NULL,
  path            text    NOT NULL,
  body            bytea   NOT NULL,
  content_type    text    NOT NULL,
  first_received  bigint  NOT NULL,
  reached_at      bigint  NOT NULL,    -- when it came to its recovery point
  attempts        integer NOT NULL,    -- the completer's
  next_attempt_at bigint  NOT NULL,
  dead_at         bigint,              -- a dead letter since; an operator restarts it
  last_error      text    NOT NULL
)
-- Rows change a few times within a second and vanish: room on the page keeps those changes out of the indexes.
WITH (fillfactor = 50);

CREATE INDEX IF NOT EXISTS oncekey_operation_by_age ON oncekey_operation (first_received, id);

-- Answers to finished operations, one partition per bucket of time in which they expire together.
CREATE TABLE IF NOT EXISTS oncekey_answer (
  bucket         text   NOT NULL,
  id             bytea  NOT NULL,
  fingerprint    bytea  NOT NULL,
  operation      text   NOT NULL,
  fence          bigint NOT NULL,
  first_received bigint NOT NULL,
  finished_at    bigint NOT NULL,
  expires_at     bigint NOT NULL, -- from this instant on it counts as absent
  response       bytea  NOT NULL  -- status, headers and body: docs/RECORD_FORMAT.md
) PARTITION BY LIST (bucket);
CREATE INDEX IF NOT EXISTS oncekey_answer_by_id ON oncekey_answer (id);

-- Which buckets exist, and when everything in them has expired.
CREATE TABLE IF NOT EXISTS oncekey_bucket (
  kind    text   NOT NULL, -- answer, inbox
  name    text   NOT NULL,
  ends_at bigint NOT NULL,
  PRIMARY KEY (kind, name)
);
