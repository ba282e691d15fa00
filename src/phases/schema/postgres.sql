-- Oncekey's tables and functions for PostgreSQL, schema version 1.
-- Times are milliseconds since 1970 on the server's clock. Every statement may be run again.

-- What belongs to the database as a whole: the version of this schema, and the secret that ids and fingerprints are
-- keyed with.
CREATE TABLE IF NOT EXISTS oncekey_meta (
  name  text  PRIMARY KEY,
  value bytea NOT NULL
);
INSERT INTO oncekey_meta (name, value) VALUES ('schema', '1') ON CONFLICT (name) DO NOTHING;

-- Operations that are not finished. One row per key from the first claim to the response; the reaper never comes here.
-- A finished operation moves to oncekey_answer in the transaction that finishes it.
CREATE TABLE IF NOT EXISTS oncekey_operation (
  id              bytea   PRIMARY KEY, -- keyed hash of principal, method, path and key
  fingerprint     bytea   NOT NULL,    -- keyed hash of what the request asks for
  operation       text    NOT NULL,
  recovery_point  text    NOT NULL,
  fence           bigint  NOT NULL,    -- grows with every claim and every phase, from the clock on
  lease_until     bigint  NOT NULL,    -- the owner's; 0 when it has none
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

-- The functions: the steps of a key and of a phase, each in one statement. They call no other function of this schema and
-- may be replaced at any time. p_now is the server's clock as the calling statement read it.
--
-- All of them keep the planner from reading whole tables. In a table with few rows it would, and a serializable
-- transaction that has read a whole table conflicts with every other: unrelated operations would undo each other by the
-- thousand. The setting lasts for the call, so that the application's statements are planned as before.

-- Inserts the operation and returns p_now; null if the key is claimed or answered already. To be called at READ
-- COMMITTED: between the first look for an answer and the insertion, another run may have claimed AND finished the same
-- key. From the insertion on no other run can, and the second look sees one that did before.
CREATE OR REPLACE FUNCTION oncekey_claim(
  p_id bytea, p_fingerprint bytea, p_operation text, p_recovery_point text, p_lease bigint, p_identity bytea,
  p_principal text, p_key text, p_method text, p_path text, p_body bytea, p_content_type text, p_now bigint
) RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'oncekey_claim needs READ COMMITTED: any other level would not see who was quicker';
  END IF;
  INSERT INTO oncekey_operation (id, fingerprint, operation, recovery_point, fence, lease_until, identity, notes,
                                 principal, key, method, path, body, content_type, first_received, reached_at, attempts,
                                 next_attempt_at, last_error)
    -- The fence starts at the clock, so that it has grown past every owner's of an earlier life of the same key.
    SELECT p_id, p_fingerprint, p_operation, p_recovery_point, p_now, p_now + p_lease, p_identity, '',
           p_principal, p_key, p_method, p_path, p_body, p_content_type, p_now, p_now, 0, 0, ''
    WHERE NOT EXISTS (SELECT 1 FROM oncekey_answer WHERE id = p_id AND expires_at > p_now)
    ON CONFLICT (id) DO NOTHING;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  IF EXISTS (SELECT 1 FROM oncekey_answer WHERE id = p_id AND expires_at > p_now) THEN
    DELETE FROM oncekey_operation WHERE id = p_id AND identity = p_identity;
    RETURN NULL;
  END IF;
  RETURN p_now;
END $$;

-- Locks the operation until the transaction ends, if the fence is still the owner's; null if it is not. Returns the
-- transaction's number, by which the functions that end a phase know that they are in the same transaction.
CREATE OR REPLACE FUNCTION oncekey_own(p_id bytea, p_fence bigint)
RETURNS bigint LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  PERFORM 1 FROM oncekey_operation WHERE id = p_id AND fence = p_fence FOR UPDATE;
  IF FOUND THEN
    RETURN txid_current();
  END IF;
  RETURN NULL;
END $$;

-- Ends a phase at a recovery point, or where it was when that is null. What is not in the transaction that oncekey_own
-- locked the row in must not commit: the error keeps the COMMIT that follows from being executed.
CREATE OR REPLACE FUNCTION oncekey_move_on(
  p_id bytea, p_fence bigint, p_transaction bigint, p_recovery_point text, p_notes bytea, p_lease bigint, p_now bigint
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  IF p_transaction = txid_current() THEN
    UPDATE oncekey_operation
      SET fence = fence + 1, notes = p_notes, lease_until = p_now + p_lease,
          recovery_point = coalesce(p_recovery_point, recovery_point),
          reached_at = CASE WHEN p_recovery_point IS NULL THEN reached_at ELSE p_now END
      WHERE id = p_id AND fence = p_fence;
    IF FOUND THEN
      RETURN;
    END IF;
  END IF;
  RAISE EXCEPTION 'the application''s code ended the transaction itself; only the library may commit or roll back'
    USING ERRCODE = 'OK001';
END $$;

-- Ends the last phase: the operation becomes an answer.
CREATE OR REPLACE FUNCTION oncekey_finish(
  p_id bytea, p_fence bigint, p_transaction bigint, p_expires_at bigint, p_response bytea, p_bucket text, p_now bigint
) RETURNS void LANGUAGE plpgsql SET enable_seqscan = off AS $$
DECLARE
  asked_for bytea;
  finished text;
  received bigint;
BEGIN
  IF p_transaction = txid_current() THEN
    DELETE FROM oncekey_operation WHERE id = p_id AND fence = p_fence
      RETURNING fingerprint, operation, first_received INTO asked_for, finished, received;
    IF FOUND THEN
      INSERT INTO oncekey_answer (bucket, id, fingerprint, operation, fence, first_received, finished_at, expires_at,
                                  response)
        VALUES (p_bucket, p_id, asked_for, finished, p_fence, received, p_now, p_expires_at, p_response);
      RETURN;
    END IF;
  END IF;
  RAISE EXCEPTION 'the application''s code ended the transaction itself; only the library may commit or roll back'
    USING ERRCODE = 'OK001';
END $$;

-- Whether a consumer has processed a message.
CREATE OR REPLACE FUNCTION oncekey_seen(p_consumer bytea, p_message_id bytea, p_now bigint)
RETURNS boolean LANGUAGE plpgsql SET enable_seqscan = off AS $$
BEGIN
  RETURN EXISTS (SELECT 1 FROM oncekey_inbox
                 WHERE consumer = p_consumer AND message_id = p_message_id AND expires_at > p_now);
END $$;
