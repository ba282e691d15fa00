-- Oncekey's tables and functions for PostgreSQL, schema version 1.
-- Times are milliseconds since 1970 on the server's clock. Every statement may be run again.

@TABLES@
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
