R"sql(
-- What operators need: to hold a key, to act on jobs as they have seen them, and to know which gateways there are.

-- Holds an abandoned record by hand. Answers as oncekey.operate: 1 done, 2 absent, 3 live, 4 completed, 5 ask again.
CREATE FUNCTION oncekey.hold_by_hand(skew int8, lock int8, id bytea) RETURNS int2 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment int8;
  found  oncekey.record;
BEGIN
  IF NOT pg_try_advisory_xact_lock(lock) THEN RETURN 5; END IF;
  moment := oncekey.clock() + skew;
  SELECT * INTO found FROM oncekey.record r WHERE r.id = hold_by_hand.id;
  IF found.id IS NULL OR found.expires_at <= moment THEN RETURN 2; END IF;
  IF found.state = 2 THEN RETURN 4; END IF;
  IF found.state = 3 THEN RETURN 1; END IF;
  IF found.lease_until > moment THEN RETURN 3; END IF;
  IF found.awaited THEN PERFORM pg_notify('oncekey_settled', encode(hold_by_hand.id, 'hex')); END IF;
  UPDATE oncekey.record r SET state = 3, settled_at = moment, rerun = false WHERE r.id = hold_by_hand.id;
  RETURN 1;
END $$;

-- oncekey.operate_job, unless the job is no longer as it was seen; a seen fence of -1 asks for no comparison. Answers 1
-- done, 2 absent, 3 taken, 4 over, 5 the message is gone, 6 changed, 7 ask again.
CREATE FUNCTION oncekey.operate_seen_job(skew int8, id bytea, action int2, seen_state int2, seen_fence int8)
RETURNS int2 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  answer int2;
BEGIN
  IF NOT oncekey.lock_job(id) THEN RETURN 7; END IF;
  IF seen_fence >= 0 AND EXISTS (
    SELECT FROM oncekey.job f
    WHERE f.id = operate_seen_job.id AND f.expires_at > oncekey.clock() + skew
      AND (f.state <> seen_state OR f.fence <> seen_fence)) THEN RETURN 6; END IF;
  answer := oncekey.operate_job(skew, id, action);
  RETURN CASE answer WHEN 6 THEN 7 ELSE answer END;
END $$;

-- The gateways on this store. Each updates its row every few seconds.
CREATE TABLE oncekey.gateway (
  instance text PRIMARY KEY,
  name     text NOT NULL,
  version  text NOT NULL,
  state    text NOT NULL,
  started  int8 NOT NULL,
  seen     int8 NOT NULL -- on the store's clock
) WITH (fillfactor = 10);

-- Notes that a gateway is alive, forgets those that were silent for long, and answers with all.
CREATE FUNCTION oncekey.beat(skew int8, instance text, name text, version text, state text, started int8,
                             forgotten_after int8) RETURNS SETOF oncekey.gateway LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
  moment int8 := oncekey.clock() + skew;
BEGIN
  INSERT INTO oncekey.gateway AS g VALUES (beat.instance, beat.name, beat.version, beat.state, beat.started, moment)
  ON CONFLICT (instance) DO UPDATE SET state = excluded.state, seen = excluded.seen;
  DELETE FROM oncekey.gateway g WHERE g.seen < moment - forgotten_after;
  RETURN QUERY SELECT * FROM oncekey.gateway g ORDER BY g.name, g.started;
END $$;
)sql"
