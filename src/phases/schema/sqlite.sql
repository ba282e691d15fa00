-- Oncekey's tables for SQLite, schema version 1.
-- Times are milliseconds since 1970 on the machine's clock. Every statement may be run again.

@TABLES@
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
