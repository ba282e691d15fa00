-- Oncekey's tables for SQLite, part 2: staged jobs and the inbox.

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
