-- Oncekey's tables for PostgreSQL, part 2: staged jobs and the inbox.

-- Jobs staged by transactions and not yet accepted by their sink. Deleted by id, one by one, when they are.
CREATE TABLE IF NOT EXISTS oncekey_job (
  id              bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- never used twice
  sink            text    NOT NULL,
  name            text    NOT NULL,
  args            bytea   NOT NULL,
  staged_at       bigint  NOT NULL,
  attempts        integer NOT NULL DEFAULT 0, -- refusals by the sink
  next_attempt_at bigint  NOT NULL,
  claimed_until   bigint  NOT NULL DEFAULT 0, -- an enqueuer has it until then
  claim           bigint  NOT NULL DEFAULT 0, -- names that enqueuer's batch
  state           text    NOT NULL DEFAULT 'staged' CHECK (state IN ('staged', 'dead')),
  dead_at         bigint,
  last_error      text    NOT NULL DEFAULT ''
)
WITH (fillfactor = 70);

CREATE INDEX IF NOT EXISTS oncekey_job_waiting ON oncekey_job (sink, id) WHERE state = 'staged';
CREATE INDEX IF NOT EXISTS oncekey_job_dead ON oncekey_job (id) WHERE state = 'dead';

-- Messages that were processed, by consumer: one partition per bucket of time in which they are forgotten together.
CREATE TABLE IF NOT EXISTS oncekey_inbox (
  bucket     text   NOT NULL,
  consumer   bytea  NOT NULL,
  message_id bytea  NOT NULL,
  done_at    bigint NOT NULL,
  expires_at bigint NOT NULL,
  PRIMARY KEY (bucket, consumer, message_id)
) PARTITION BY LIST (bucket);
CREATE INDEX IF NOT EXISTS oncekey_inbox_by_message ON oncekey_inbox (consumer, message_id);
