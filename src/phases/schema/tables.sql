-- The tables that both databases have alike: cmake/embed_schema.cmake puts them into the file of each.

-- What belongs to the database as a whole: the version of this schema, and the secret that ids and fingerprints are
-- keyed with.
CREATE TABLE IF NOT EXISTS oncekey_meta (
  name  text PRIMARY KEY,
  value @BYTES@ NOT NULL
);
INSERT INTO oncekey_meta (name, value) VALUES ('schema', '1') ON CONFLICT (name) DO NOTHING;

-- Operations that are not finished. One row per key from the first claim to the response; the reaper never comes here.
-- A finished operation moves to the answers in the transaction that finishes it.
CREATE TABLE IF NOT EXISTS oncekey_operation (
  id              @BYTES@ PRIMARY KEY NOT NULL, -- keyed hash of principal, method, path and key
  fingerprint     @BYTES@ NOT NULL,             -- keyed hash of what the request asks for
  operation       text    NOT NULL,
  recovery_point  text    NOT NULL,
  fence           bigint  NOT NULL,             -- grows with every claim and every phase, from the clock on
  lease_until     bigint  NOT NULL,             -- the owner's; 0 when it has none
  identity        @BYTES@ NOT NULL,             -- random; foreign calls' keys are derived from it
  notes           @BYTES@ NOT NULL,
  principal       text    NOT NULL,
  key             text    NOT NULL,
  method          text    NOT NULL,
  path            text    NOT NULL,
  body            @BYTES@ NOT NULL,
  content_type    text    NOT NULL,
  first_received  bigint  NOT NULL,
  reached_at      bigint  NOT NULL,             -- when it came to its recovery point
  attempts        integer NOT NULL,             -- the completer's
  next_attempt_at bigint  NOT NULL,
  dead_at         bigint,                       -- a dead letter since; an operator restarts it
  last_error      text    NOT NULL
)@FILLED_BY_50@;
CREATE INDEX IF NOT EXISTS oncekey_operation_by_age ON oncekey_operation (first_received, id);

-- Which buckets exist, and when everything in them has expired.
CREATE TABLE IF NOT EXISTS oncekey_bucket (
  kind    text   NOT NULL, -- answer, inbox
  name    text   NOT NULL,
  ends_at bigint NOT NULL,
  PRIMARY KEY (kind, name)
);

-- Jobs staged by transactions and not yet accepted by their sink. Deleted by id, one by one, when they are.
CREATE TABLE IF NOT EXISTS oncekey_job (
  id              @NEVER_USED_TWICE@, -- also after the newest was deleted
  sink            text    NOT NULL,
  name            text    NOT NULL,
  args            @BYTES@ NOT NULL,
  staged_at       bigint  NOT NULL,
  attempts        integer NOT NULL DEFAULT 0, -- refusals by the sink
  next_attempt_at bigint  NOT NULL,
  claimed_until   bigint  NOT NULL DEFAULT 0, -- an enqueuer has it until then
  claim           bigint  NOT NULL DEFAULT 0, -- names that enqueuer's batch
  state           text    NOT NULL DEFAULT 'staged' CHECK (state IN ('staged', 'dead')),
  dead_at         bigint,
  last_error      text    NOT NULL DEFAULT ''
)@FILLED_BY_70@;
CREATE INDEX IF NOT EXISTS oncekey_job_waiting ON oncekey_job (sink, id) WHERE state = 'staged';
CREATE INDEX IF NOT EXISTS oncekey_job_dead ON oncekey_job (id) WHERE state = 'dead';
