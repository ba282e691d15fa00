R"sql(
-- Everything Oncekey keeps is in this schema. The functions below do to a record exactly what src/core/transitions.cc
-- does; the conformance suite holds both to the same words.
--
-- Binaries of two versions may run at once, so a later migration adds and leaves alone: a function that must change
-- gets a new name, a column a default. One that cannot be so says in `compatible_from` which binaries it shuts out.

-- One row: what tells this store from any other, and whether it still remembers (src/store/common/marker_keeper.h).
CREATE TABLE oncekey.meta (
  only_row   bool PRIMARY KEY DEFAULT true CHECK (only_row),
  generation text NOT NULL,
  replaces   text NOT NULL DEFAULT '',
  tick       int8 NOT NULL DEFAULT 0,
  lost       bool NOT NULL DEFAULT false,
  timeline   text NOT NULL DEFAULT '', -- the server's when oncekey.fence was last moved on
  secret     bytea NOT NULL CHECK (octet_length(secret) >= 64), -- src/store/common/kept_secret.h
  created_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 10); -- updated every second: all versions stay on one page

-- Times are milliseconds on the server's clock. A record is in one partition at a time: that of the stretch of time in
-- which it expires. `bucket` is the end of the stretch, shifted left by six bits, and the logarithm of its width.
CREATE TABLE oncekey.record (
  bucket         int8 NOT NULL,
  fence          int8 NOT NULL,
  first_received int8 NOT NULL,
  expires_at     int8 NOT NULL,
  lease_until    int8 NOT NULL,
  settled_at     int8 NOT NULL DEFAULT 0,
  state          int2 NOT NULL, -- 1 in_progress, 2 completed, 3 indeterminate
  took_over      bool NOT NULL DEFAULT false,
  rerun          bool NOT NULL DEFAULT false,
  awaited        bool NOT NULL DEFAULT false, -- a gateway waits for it to be settled, and wants to be told
  partial        bool NOT NULL DEFAULT false, -- the response's body was left out and is not known whole yet
  id             bytea NOT NULL,
  fingerprint    bytea NOT NULL,
  claimed_by     bytea NOT NULL,
  route          text NOT NULL,
  key            text NOT NULL,
  method         text NOT NULL,
  target         text NOT NULL,
  response       bytea -- docs/RECORD_FORMAT.md; has a checksum of its own
) PARTITION BY LIST (bucket);

-- Each claim gets the next number. A standby that is promoted without the last writes has an older value, and so has a
-- restored backup: check_marker() then moves the counter on to the time in microseconds, which is above every number
-- given before (src/store/common/fences.h).
CREATE SEQUENCE oncekey.fence;

-- Messages to be delivered (src/core/job.h). The state is small and changes with every attempt; the message is written
-- once. Both are deleted by forget_jobs() when they have expired.
CREATE SEQUENCE oncekey.job_place;
CREATE TABLE oncekey.job (
  id           bytea PRIMARY KEY,
  place        int8 NOT NULL DEFAULT nextval('oncekey.job_place'), -- jobs of one queue go one after another, in this order
  queue        bytea,          -- of an ordered job: the order that its id names
  behind       bool NOT NULL,  -- an open job of its queue has a lower place; false where that is not known
  state        int2 NOT NULL,  -- 1 waiting, 2 taken, 3 delivered, 4 dropped, 5 dead
  message_kept bool NOT NULL,
  fence        int8 NOT NULL,
  attempts     int8 NOT NULL,
  staged_at    int8 NOT NULL,
  due_at       int8 NOT NULL,
  ended_at     int8 NOT NULL,
  expires_at   int8 NOT NULL,
  tried        text NOT NULL,  -- the newest attempts, a line each (src/core/attempt_lines.h)
  why_dead     text NOT NULL,
  fingerprint  bytea NOT NULL,
  route        text NOT NULL,
  key          text NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX job_due ON oncekey.job (route, due_at, place) WHERE state IN (1, 2) AND NOT behind;
CREATE INDEX job_queue ON oncekey.job (queue, place) WHERE queue IS NOT NULL AND state IN (1, 2);
CREATE INDEX job_queue_taken ON oncekey.job (queue) WHERE queue IS NOT NULL AND state = 2;
CREATE INDEX job_dead ON oncekey.job (route) WHERE state = 5;
CREATE INDEX job_expiry ON oncekey.job (expires_at);

CREATE TABLE oncekey.job_message (
  id      bytea PRIMARY KEY REFERENCES oncekey.job ON DELETE CASCADE,
  message bytea NOT NULL -- docs/RECORD_FORMAT.md; has a checksum of its own
);

-- A long response or message is compressed where the server has a fast way to do it, and else kept as it is.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
    ALTER TABLE oncekey.record ALTER COLUMN response SET COMPRESSION lz4;
    ALTER TABLE oncekey.job_message ALTER COLUMN message SET COMPRESSION lz4;
  ELSE
    ALTER TABLE oncekey.record ALTER COLUMN response SET STORAGE EXTERNAL;
    ALTER TABLE oncekey.job_message ALTER COLUMN message SET STORAGE EXTERNAL;
  END IF;
END $$;

-- Keys in progress or indeterminate, so that those that wait for a person are found without a look at all records.
-- Claims do not write here: every few seconds note_unsettled() adds the claims since the last time that are still open,
-- which are few. Some of the keys in here are settled.
CREATE TABLE oncekey.unsettled (
  id bytea PRIMARY KEY
);
-- One row: the claims up to this time have been looked at.
CREATE TABLE oncekey.noted (
  only_row   bool PRIMARY KEY DEFAULT true CHECK (only_row),
  noted_until int8 NOT NULL
) WITH (fillfactor = 10);
INSERT INTO oncekey.noted (noted_until) VALUES (0);

-- The one clock that leases and expiry go by.
CREATE FUNCTION oncekey.clock() RETURNS int8 LANGUAGE sql VOLATILE
AS $$ SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::int8 $$;

-- Another one after every promotion of a standby.
CREATE FUNCTION oncekey.timeline() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) $$;

-- Where a record goes that expires then, and where one goes whose expiry has been put off (src/core/bucket.h).
CREATE FUNCTION oncekey.bucket_of(expires_at int8, width_log2 int4) RETURNS int8 LANGUAGE sql IMMUTABLE
AS $$ SELECT (((expires_at >> width_log2) + 1) << width_log2) << 6 | width_log2 $$;

CREATE FUNCTION oncekey.bucket_outliving(bucket int8, expires_at int8) RETURNS int8 LANGUAGE sql IMMUTABLE
AS $$ SELECT CASE WHEN expires_at < bucket >> 6 THEN bucket ELSE oncekey.bucket_of(expires_at, (bucket & 63)::int4) END $$;

-- record_WIDTH_INDEX, as in the names of RocksDB's buckets.
CREATE FUNCTION oncekey.partition_of(bucket int8) RETURNS text LANGUAGE sql IMMUTABLE
AS $$ SELECT format('record_%s_%s', bucket & 63, (bucket >> 6 >> (bucket & 63)::int4) - 1) $$;

-- Makes the partition of a bucket unless it is there. It is indexed apart and then attached, which holds up no reader or
-- writer of other partitions. It has no CHECK for its bucket, which every statement would read and test.
CREATE FUNCTION oncekey.make_partition(bucket int8) RETURNS bool LANGUAGE plpgsql AS $$
DECLARE
  name text := oncekey.partition_of(bucket);
BEGIN
  PERFORM pg_advisory_xact_lock(7813586407151234);
  IF to_regclass('oncekey.' || name) IS NOT NULL THEN RETURN false; END IF;
  -- A record is written when it is claimed, with some 220 bytes, and again when it is settled, then with the response:
  -- two thirds of each page are left for the second versions. Responses of up to 400 bytes then need no new index
  -- entries; with half of the page every second one did. What vacuum has to do is little and soon done, since the
  -- partition is dropped whole in the end.
  EXECUTE format('CREATE TABLE oncekey.%I (LIKE oncekey.record INCLUDING ALL) WITH (fillfactor = 35,
    autovacuum_vacuum_scale_factor = 0.5, autovacuum_vacuum_insert_scale_factor = 1, autovacuum_analyze_scale_factor = 1)',
    name);
  EXECUTE format('CREATE UNIQUE INDEX %I ON oncekey.%I (id)', name || '_id', name);
  -- For people, who want the newest first. No column in it ever changes, so that settling a record needs no new entry.
  EXECUTE format('CREATE INDEX %I ON oncekey.%I (first_received)', name || '_time', name);
  EXECUTE format('ALTER TABLE oncekey.record ATTACH PARTITION oncekey.%I FOR VALUES IN (%s)', name, bucket);
  RETURN true;
END $$;

-- Takes a partition whose time is over out of the table; it is dropped after that, when no session reads it any more.
-- False if another gateway was first. All calls wait for the few milliseconds this takes, and none for longer: where a
-- session reads the table for long (a dump), it gives up at once and is tried again later. DETACH CONCURRENTLY would
-- wait for such a reader without end, and leave a session and a half-detached partition behind when its caller is gone.
CREATE FUNCTION oncekey.detach_partition(bucket int8) RETURNS bool LANGUAGE plpgsql
SET lock_timeout = '50ms'
AS $$
DECLARE
  name text := oncekey.partition_of(bucket);
BEGIN
  LOCK TABLE oncekey.record IN ACCESS EXCLUSIVE MODE;
  IF NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = to_regclass('oncekey.' || name)) THEN RETURN false; END IF;
  EXECUTE format('ALTER TABLE oncekey.record DETACH PARTITION oncekey.%I', name);
  RETURN true;
END $$;

-- A restored or re-created database must not execute again what it has forgotten, and a connection may outlive both (a
-- pooler's, or one over which a dump was read back): so a gateway that claims says which marker it knows. A younger tick is
-- that of a backup, whatever it counts up to later. Called before the first fence of a transaction is drawn: on a new
-- timeline the counter is moved on first. No caller draws a number of the old count meanwhile, since each one that
-- finds the old timeline waits for the lock and looks again.
CREATE FUNCTION oncekey.check_marker(generation text, tick int8) RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  known text;
BEGIN
  SELECT m.timeline INTO known FROM oncekey.meta m
  WHERE m.generation = check_marker.generation AND m.tick >= check_marker.tick AND NOT m.lost;
  IF known IS NULL THEN
    RAISE EXCEPTION 'the marker in oncekey.meta is another one' USING ERRCODE = 'OK001';
  END IF;
  IF known = oncekey.timeline() THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(7813586407151235);
  UPDATE oncekey.meta m SET timeline = oncekey.timeline() WHERE m.timeline <> oncekey.timeline();
  IF found THEN
    PERFORM setval('oncekey.fence', greatest(f.last_value + 10000, oncekey.clock() * 1000)) FROM oncekey.fence f;
  END IF;
END $$;

-- Makes the commit of a transaction that changes nothing wait for the standbys as if it did. What it has seen may be of
-- a call that was given up while its commit waited: that call asks whether it has happened, and happened means replicated.
CREATE FUNCTION oncekey.wait_for_standbys() RETURNS void LANGUAGE sql VOLATILE
AS $$ SELECT pg_logical_emit_message(true, 'oncekey', '') $$;

-- What a claim or a find found; `n` is the place of the id in the question, from one. All first claims are told by one row
-- with an `n` of 0 and their fences in the order of the ids, null for the others: a row for each costs the server more.
CREATE TYPE oncekey.answer AS (
  n              int4,
  answer         int2, -- 1 claimed, 2 found, 3 found without the response, which is long: ask with find
  moment         int8,
  fence          int8,
  took_over      bool,
  rerun          bool,
  state          int2,
  first_received int8,
  expires_at     int8,
  lease_until    int8,
  settled_at     int8,
  fingerprint    bytea,
  claimed_by     bytea,
  route          text,
  key            text,
  method         text,
  target         text,
  response       bytea,
  fences         int8[]
);

-- How a call gets at its ids: a transaction lock on each, taken only if it is free, so that no session ever waits in here
-- and there is nothing to deadlock on. Only then are records looked at: every statement of these functions has a
-- snapshot of its own (READ COMMITTED), which sees what the lock's last holder committed. That makes an id unique over
-- all partitions, for which there is no index. Ids whose lock is not free get no answer, and the caller asks again.
--
-- The planner is told to use the index on id always: its statistics of a young partition, which grows by thousands of
-- records a second, are never true. Pages cost nothing, so that a look at each of the ids is cheaper than one at all
-- records as soon as these are more than a few.
--
-- The arrays of a call are unnested side by side in a SELECT's list, a row at a time. In its FROM each of them would
-- first be written to a store of tuples of its own, which is a tenth of all that a claim and its completion cost here.
-- `places` counts their rows: ten, the planner thinks; of a function that counts it thinks a thousand.

CREATE FUNCTION oncekey.claim(
  generation text, tick int8, skew int8, locks int8[], ids bytea[], fingerprints bytea[], leases int8[],
  retentions int8[], widths int4[], take_over bool[], tokens bytea[], routes text[], keys text[], methods text[],
  targets text[])
RETURNS SETOF oncekey.answer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0
AS $$
#variable_conflict use_column
DECLARE
  mine    bytea[]; -- the ids whose lock was free, null for the others
  places  int4[] := ARRAY(SELECT generate_subscripts(ids, 1));
  moment  int8;
  known   int4[];
  fences  int8[];
  changed int4[];
  taken   bool[];
  made    int8;
  firsts  oncekey.answer;
BEGIN
  PERFORM oncekey.check_marker(generation, tick);
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION 'oncekey needs default_transaction_isolation = ''read committed''' USING ERRCODE = 'OK002';
  END IF;
  mine := ARRAY(SELECT CASE WHEN pg_try_advisory_xact_lock(a.lock) THEN a.id END
                FROM (SELECT unnest(locks) AS lock, unnest(ids) AS id) a);
  moment := oncekey.clock() + skew;
  known := ARRAY(SELECT a.n FROM (SELECT unnest(ids) AS id, unnest(places) AS n) a JOIN oncekey.record r ON r.id = a.id);
  -- Drawn behind the locks, so that the fences of an id grow, and only where they are used: a transaction that draws
  -- one has to be made durable.
  fences := ARRAY(SELECT CASE WHEN a.id IS NOT NULL AND a.n <> ALL (known) THEN nextval('oncekey.fence') END
                  FROM (SELECT unnest(mine) AS id, unnest(places) AS n) a);

  INSERT INTO oncekey.record (bucket, fence, first_received, expires_at, lease_until, state, id, fingerprint, claimed_by,
                              route, key, method, target)
  SELECT oncekey.bucket_of(moment + greatest(a.retention, a.lease), a.width), a.fence, moment,
         moment + greatest(a.retention, a.lease), moment + a.lease, 1, a.id, a.fingerprint, a.token,
         a.route, a.key, a.method, a.target
  FROM (SELECT unnest(ids) AS id, unnest(fingerprints) AS fingerprint, unnest(leases) AS lease,
               unnest(retentions) AS retention, unnest(widths) AS width, unnest(tokens) AS token, unnest(routes) AS route,
               unnest(keys) AS key, unnest(methods) AS method, unnest(targets) AS target, unnest(fences) AS fence) a
  WHERE a.fence IS NOT NULL;
  GET DIAGNOSTICS made = ROW_COUNT;
  IF made > 0 THEN
    firsts.n := 0;
    firsts.moment := moment;
    firsts.fences := fences;
    RETURN NEXT firsts;
  END IF;
  IF cardinality(known) = 0 THEN RETURN; END IF;

  WITH claimed AS (
    UPDATE oncekey.record r SET
      bucket = CASE WHEN r.expires_at <= moment
               THEN oncekey.bucket_of(moment + greatest(a.retention, a.lease), a.width)
               ELSE oncekey.bucket_outliving(r.bucket, greatest(r.expires_at, moment + a.lease)) END,
      expires_at = CASE WHEN r.expires_at <= moment
                   THEN moment + greatest(a.retention, a.lease) ELSE greatest(r.expires_at, moment + a.lease) END,
      first_received = CASE WHEN r.expires_at <= moment THEN moment ELSE r.first_received END,
      settled_at = CASE WHEN r.expires_at <= moment THEN 0 ELSE moment END, -- a takeover: since when the owner has it
      response = CASE WHEN r.expires_at <= moment THEN NULL ELSE r.response END,
      partial = r.partial AND r.expires_at > moment,
      awaited = r.awaited AND r.expires_at > moment,
      route = CASE WHEN r.expires_at <= moment THEN a.route ELSE r.route END,
      key = CASE WHEN r.expires_at <= moment THEN a.key ELSE r.key END,
      method = CASE WHEN r.expires_at <= moment THEN a.method ELSE r.method END,
      target = CASE WHEN r.expires_at <= moment THEN a.target ELSE r.target END,
      took_over = r.expires_at > moment,
      fence = nextval('oncekey.fence'), lease_until = moment + a.lease, state = 1, rerun = false, fingerprint = a.fingerprint,
      claimed_by = a.token
    FROM (SELECT unnest(mine) AS id, unnest(fingerprints) AS fingerprint, unnest(leases) AS lease,
                 unnest(retentions) AS retention, unnest(widths) AS width, unnest(take_over) AS take_over,
                 unnest(tokens) AS token, unnest(routes) AS route, unnest(keys) AS key, unnest(methods) AS method,
                 unnest(targets) AS target, unnest(places) AS n) a
    WHERE r.id = a.id AND a.n = ANY (known)
      AND (r.expires_at <= moment
           OR r.fingerprint = a.fingerprint AND r.state = 1 AND r.lease_until <= moment AND (a.take_over OR r.rerun))
    RETURNING a.n, r.fence, r.took_over)
  SELECT coalesce(array_agg(c.n), '{}'), array_agg(c.fence), array_agg(c.took_over) INTO changed, fences, taken
  FROM claimed c;
  IF cardinality(changed) > 0 THEN
    RETURN QUERY SELECT c.n, 1::int2, moment, c.fence, c.took_over, NULL::bool, NULL::int2, NULL::int8, NULL::int8,
                        NULL::int8, NULL::int8, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
                        NULL::text, NULL::bytea, NULL::int8[]
                 FROM (SELECT unnest(changed) AS n, unnest(fences) AS fence, unnest(taken) AS took_over) c;
    IF cardinality(changed) = cardinality(known) THEN RETURN; END IF;
  END IF;

  -- Found as it is, which needs no lock. A long response would keep the locks while a slow caller reads it.
  RETURN QUERY
  SELECT a.n, CASE WHEN octet_length(r.response) > 16384 THEN 3 ELSE 2 END::int2, moment, r.fence, r.took_over,
         r.rerun, r.state, r.first_received, r.expires_at, r.lease_until, r.settled_at, r.fingerprint, r.claimed_by,
         r.route, r.key, r.method, r.target, CASE WHEN octet_length(r.response) <= 16384 THEN r.response END,
         NULL::int8[]
  FROM (SELECT unnest(ids) AS id, unnest(fingerprints) AS fingerprint, unnest(take_over) AS take_over,
               unnest(places) AS n) a
       JOIN oncekey.record r ON r.id = a.id
  WHERE a.n = ANY (known) AND a.n <> ALL (changed)
    AND NOT (r.expires_at <= moment
             OR r.fingerprint = a.fingerprint AND r.state = 1 AND r.lease_until <= moment AND (a.take_over OR r.rerun));
END $$;

-- renew (1), complete (2), release (3), hold by the owner (4) and by a finder (5). The answers stand in the order of the
-- ids: 1 done, 2 lost, 3 ask again.
CREATE FUNCTION oncekey.settle(
  skew int8, locks int8[], ids bytea[], fences int8[], tokens bytea[], verbs int2[], leases int8[], responses bytea[],
  partials bool[])
RETURNS int2[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0
AS $$
#variable_conflict use_column
DECLARE
  mine   bytea[]; -- the ids whose lock was free, null for the others
  places int4[] := ARRAY(SELECT generate_subscripts(ids, 1));
  moment int8;
  done   int4[];
  told   bytea[];
  freed  int4[] := '{}';
BEGIN
  mine := ARRAY(SELECT CASE WHEN pg_try_advisory_xact_lock(a.lock) THEN a.id END
                FROM (SELECT unnest(locks) AS lock, unnest(ids) AS id) a);
  moment := oncekey.clock() + skew;
  IF 3 = ANY (verbs) THEN
    WITH released AS (
      DELETE FROM oncekey.record r
      USING (SELECT unnest(mine) AS id, unnest(fences) AS fence, unnest(tokens) AS token, unnest(verbs) AS verb,
                    unnest(places) AS n) a
      WHERE r.id = a.id AND a.verb = 3 AND r.fence = a.fence AND r.expires_at > moment
        AND (a.token IS NULL OR substring(r.claimed_by FROM 1 FOR 16) = a.token) AND r.state = 1 AND NOT r.took_over
      RETURNING a.n, r.id, r.awaited)
    SELECT coalesce(array_agg(d.n), '{}'), array_agg(d.id) FILTER (WHERE d.awaited) INTO freed, told FROM released d;
    IF told IS NOT NULL THEN PERFORM pg_notify('oncekey_settled', encode(t, 'hex')) FROM unnest(told) AS t; END IF;
  END IF;
  WITH settled AS (
    UPDATE oncekey.record r SET
      bucket = CASE a.verb WHEN 1 THEN oncekey.bucket_outliving(r.bucket, moment + a.lease) ELSE r.bucket END,
      expires_at = CASE a.verb WHEN 1 THEN greatest(r.expires_at, moment + a.lease) ELSE r.expires_at END,
      lease_until = CASE a.verb WHEN 1 THEN moment + a.lease WHEN 3 THEN moment ELSE r.lease_until END,
      state = CASE a.verb WHEN 2 THEN 2 WHEN 4 THEN 3 WHEN 5 THEN 3 ELSE r.state END::int2,
      settled_at = CASE WHEN a.verb IN (1, 3) OR a.verb = 2 AND r.state = 2 THEN r.settled_at ELSE moment END,
      rerun = r.rerun AND a.verb <> 2,
      response = CASE a.verb WHEN 2 THEN a.response ELSE r.response END,
      partial = CASE a.verb WHEN 2 THEN a.partial ELSE r.partial END
    FROM (SELECT unnest(mine) AS id, unnest(fences) AS fence, unnest(tokens) AS token, unnest(verbs) AS verb,
                 unnest(leases) AS lease, unnest(responses) AS response, unnest(partials) AS partial,
                 unnest(places) AS n) a
    WHERE r.id = a.id AND r.fence = a.fence AND r.expires_at > moment
      AND (a.token IS NULL OR substring(r.claimed_by FROM 1 FOR 16) = a.token)
      AND (r.state = 1 AND (a.verb <> 5 OR r.lease_until <= moment AND NOT r.rerun)
           OR a.verb = 2 AND (r.state = 3 OR r.state = 2 AND r.partial))
    RETURNING a.n, r.id, r.awaited AND a.verb <> 1 AS tell)
  SELECT coalesce(array_agg(s.n), '{}'), array_agg(s.id) FILTER (WHERE s.tell) INTO done, told FROM settled s;
  -- Only where a gateway waits: notifications make commits wait for each other.
  IF told IS NOT NULL THEN PERFORM pg_notify('oncekey_settled', encode(t, 'hex')) FROM unnest(told) AS t; END IF;
  IF cardinality(done || freed) = cardinality(ids) THEN RETURN array_fill(1::int2, ARRAY[cardinality(ids)]); END IF;
  PERFORM oncekey.wait_for_standbys();
  RETURN ARRAY(SELECT (CASE WHEN a.id IS NULL THEN 3 WHEN a.n = ANY (done || freed) THEN 1 ELSE 2 END)::int2
               FROM (SELECT unnest(mine) AS id, unnest(places) AS n) a);
END $$;

-- By hand: release (1), complete (2), rerun (3), hold (4). Answers 1 done, 2 absent, 3 live, 4 completed, 5 ask again.
CREATE FUNCTION oncekey.operate(skew int8, lock int8, id bytea, action int2, response bytea, partial bool)
RETURNS int2 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment int8;
  found  oncekey.record;
BEGIN
  IF NOT pg_try_advisory_xact_lock(lock) THEN RETURN 5; END IF;
  moment := oncekey.clock() + skew;
  SELECT * INTO found FROM oncekey.record r WHERE r.id = operate.id;
  IF found.id IS NULL OR found.expires_at <= moment THEN RETURN 2; END IF;
  IF found.state = 2 THEN RETURN 4; END IF;
  IF found.state = 1 AND found.lease_until > moment THEN RETURN 3; END IF;
  IF found.state = 3 AND action = 4 THEN RETURN 1; END IF; -- it is held already
  IF found.awaited THEN PERFORM pg_notify('oncekey_settled', encode(operate.id, 'hex')); END IF;
  IF action = 1 THEN
    DELETE FROM oncekey.record r WHERE r.id = operate.id;
    RETURN 1;
  END IF;
  UPDATE oncekey.record r SET
    state = CASE action WHEN 2 THEN 2 WHEN 3 THEN 1 ELSE 3 END::int2,
    settled_at = CASE WHEN action = 3 THEN r.settled_at ELSE moment END,
    lease_until = CASE WHEN action = 3 THEN moment ELSE r.lease_until END,
    rerun = action = 3,
    response = CASE WHEN action = 2 THEN operate.response ELSE r.response END,
    partial = CASE WHEN action = 2 THEN operate.partial ELSE r.partial END
  WHERE r.id = operate.id;
  RETURN 1;
END $$;

-- Notes that a gateway waits for these ids to be settled; false for those to ask again for.
CREATE FUNCTION oncekey.await(skew int8, locks int8[], ids bytea[]) RETURNS bool[] LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0
AS $$
#variable_conflict use_column
DECLARE
  locked bool[];
BEGIN
  locked := ARRAY(SELECT pg_try_advisory_xact_lock(l) FROM unnest(locks) AS l);
  UPDATE oncekey.record r SET awaited = true
  FROM unnest(locked, ids) AS a(locked, id)
  WHERE r.id = a.id AND a.locked AND r.state = 1 AND NOT r.awaited AND r.expires_at > oncekey.clock() + skew;
  RETURN locked;
END $$;

-- The records as they are, without those that count as absent. Locks nothing.
CREATE FUNCTION oncekey.find(skew int8, ids bytea[]) RETURNS SETOF oncekey.answer LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0
AS $$
#variable_conflict use_column
DECLARE
  moment int8 := oncekey.clock() + skew;
BEGIN
  RETURN QUERY
  SELECT a.n::int4, 2::int2, moment, r.fence, r.took_over, r.rerun, r.state, r.first_received, r.expires_at,
         r.lease_until, r.settled_at, r.fingerprint, r.claimed_by, r.route, r.key, r.method, r.target, r.response,
         NULL::int8[]
  FROM unnest(ids) WITH ORDINALITY AS a(id, n) JOIN oncekey.record r ON r.id = a.id
  WHERE r.expires_at > moment;
END $$;

-- Those of the ids that are in progress and have an owner at work: what to ask where notifications do not arrive.
CREATE FUNCTION oncekey.at_work(skew int8, ids bytea[]) RETURNS SETOF bytea LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off
SET plan_cache_mode = force_generic_plan SET random_page_cost = 0
AS $$
DECLARE
  moment int8 := oncekey.clock() + skew;
BEGIN
  RETURN QUERY SELECT r.id FROM unnest(ids) AS a(id) JOIN oncekey.record r ON r.id = a.id
               WHERE r.state = 1 AND r.lease_until > moment AND r.expires_at > moment;
END $$;

-- Brings oncekey.unsettled up to date, unless another gateway is at it. Claims commit a moment after the time they bear: those
-- of the last fifteen seconds, longer than any call may take, are looked at again. One that has just begun need not be
-- noted: most are over soon.
CREATE FUNCTION oncekey.note_unsettled(skew int8) RETURNS void LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment int8 := oncekey.clock() + skew;
  since  int8;
BEGIN
  IF NOT pg_try_advisory_xact_lock(7813586407151236) THEN RETURN; END IF;
  SELECT n.noted_until - 15000 INTO since FROM oncekey.noted n;
  INSERT INTO oncekey.unsettled (id)
  SELECT r.id FROM oncekey.record r
  WHERE r.first_received > since AND r.first_received <= moment AND r.state <> 2
    AND (r.first_received <= moment - 1000 OR r.state = 3 OR r.lease_until <= moment)
  ON CONFLICT (id) DO NOTHING;
  UPDATE oncekey.noted n SET noted_until = moment - 1000 WHERE n.noted_until < moment - 1000;
  DELETE FROM oncekey.unsettled u
  WHERE NOT EXISTS (SELECT FROM oncekey.record r WHERE r.id = u.id AND r.state <> 2 AND r.expires_at > moment);
END $$;

-- Abandoned and indeterminate keys, of the first `looks` in oncekey.unsettled.
CREATE FUNCTION oncekey.count_waiting(skew int8, looks int8, OUT abandoned int8, OUT indeterminate int8)
LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  moment int8 := oncekey.clock() + skew;
BEGIN
  SELECT count(*) FILTER (WHERE r.state = 1 AND r.lease_until <= moment AND NOT r.rerun),
         count(*) FILTER (WHERE r.state = 3) INTO abandoned, indeterminate
  FROM (SELECT u.id FROM oncekey.unsettled u LIMIT looks) u JOIN oncekey.record r ON r.id = u.id
  WHERE r.expires_at > moment;
END $$;

-- Jobs: exactly what src/core/job_transitions.cc does. Here too a call takes the lock of its id if it is free, and else
-- is asked again. What changes an ordered job has the lock of its queue too, so that `behind` stays true: it is set and
-- cleared under that lock alone.
CREATE FUNCTION oncekey.lock_queue(queue bytea) RETURNS bool LANGUAGE sql VOLATILE
AS $$ SELECT queue IS NULL OR pg_try_advisory_xact_lock(7813586, hashtext(encode(queue, 'hex'))) $$;

CREATE FUNCTION oncekey.lock_job(id bytea) RETURNS bool LANGUAGE sql VOLATILE
AS $$
  SELECT CASE WHEN pg_try_advisory_xact_lock(('x' || encode(substr(id, 9, 8), 'hex'))::bit(64)::int8)
         THEN coalesce((SELECT oncekey.lock_queue(j.queue) FROM oncekey.job j WHERE j.id = lock_job.id), true)
         ELSE false END
$$;

-- Is there an open job with a lower place?
CREATE FUNCTION oncekey.is_behind(queue bytea, place int8, moment int8) RETURNS bool LANGUAGE sql VOLATILE
AS $$
  SELECT EXISTS (SELECT FROM oncekey.job e WHERE e.queue = is_behind.queue AND e.state IN (1, 2)
                 AND e.place < is_behind.place AND e.expires_at > moment)
$$;

-- After a job of the queue has ended: the next one may be taken.
CREATE FUNCTION oncekey.let_first_go(queue bytea, moment int8) RETURNS void LANGUAGE sql VOLATILE
AS $$
  UPDATE oncekey.job j SET behind = false
  WHERE j.behind AND j.id = (SELECT e.id FROM oncekey.job e WHERE e.queue = let_first_go.queue AND e.state IN (1, 2)
                             AND e.expires_at > moment ORDER BY e.place LIMIT 1)
$$;

-- Remembers an event and stages its message, in one transaction. 1 staged, 2 known, 3 ask again; `known` is the
-- fingerprint of the job that is there.
CREATE FUNCTION oncekey.stage(
  generation text, tick int8, skew int8, id bytea, fingerprint bytea, route text, key text, ordered bool, delay int8,
  retention int8, message bytea, OUT answer int2, OUT known bytea)
LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  moment int8 := oncekey.clock() + skew;
  queue  bytea := CASE WHEN ordered THEN substr(id, 25) END;
  place  int8;
BEGIN
  PERFORM oncekey.check_marker(generation, tick);
  answer := 3;
  IF NOT oncekey.lock_job(id) THEN RETURN; END IF;
  answer := 2;
  SELECT j.fingerprint INTO known FROM oncekey.job j WHERE j.id = stage.id AND j.expires_at > moment;
  IF found THEN
    PERFORM oncekey.wait_for_standbys();
    RETURN;
  END IF;
  DELETE FROM oncekey.job j WHERE j.id = stage.id; -- it has expired, and its place is gone with it
  IF found THEN PERFORM oncekey.let_first_go(substr(id, 25), moment); END IF;
  place := nextval('oncekey.job_place');
  INSERT INTO oncekey.job (id, place, queue, behind, state, message_kept, fence, attempts, staged_at, due_at, ended_at,
                           expires_at, tried, why_dead, fingerprint, route, key)
  VALUES (id, place, queue,
          -- Without the lock, one before it may just be ending: take() looks again.
          ordered AND oncekey.lock_queue(queue) AND oncekey.is_behind(queue, place, moment),
          1, true, 0, 0, moment, moment + delay, 0, moment + greatest(retention, delay), '', '', fingerprint, route, key);
  INSERT INTO oncekey.job_message (id, message) VALUES (id, message);
  answer := 1;
  known := fingerprint;
END $$;

-- A job as its callers get it.
CREATE TYPE oncekey.job_answer AS (moment int8, job oncekey.job, message bytea);

-- Makes the caller the owner of up to `wanted` jobs that have been due for `overdue`, those due longest first. Jobs whose
-- lock is not free are left to the next call. What was found without the lock is looked at again under it.
CREATE FUNCTION oncekey.take(
  generation text, tick int8, skew int8, of_route text, wanted int4, lease int8, overdue int8)
RETURNS SETOF oncekey.job_answer LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
  moment int8 := oncekey.clock() + skew;
  due    record;
  bytes  int8 := 0;
BEGIN
  PERFORM oncekey.check_marker(generation, tick);
  FOR due IN
    SELECT j.id, j.queue, j.place FROM oncekey.job j
    WHERE j.route = of_route AND j.state IN (1, 2) AND NOT j.behind AND j.due_at <= moment - overdue
      AND j.expires_at > moment AND j.message_kept
    ORDER BY j.due_at, j.place LIMIT 4 * wanted -- some may be on their way to another gateway
  LOOP
    EXIT WHEN wanted = 0 OR bytes > 4194304; -- what a slow connection carries within a call's time
    CONTINUE WHEN NOT oncekey.lock_job(due.id);
    IF due.queue IS NOT NULL THEN -- and its lock is ours
      IF oncekey.is_behind(due.queue, due.place, moment) THEN
        UPDATE oncekey.job j SET behind = true WHERE j.id = due.id;
        CONTINUE;
      END IF;
      -- A job with a lower place may have been committed after one with a higher place was taken.
      CONTINUE WHEN EXISTS (SELECT FROM oncekey.job e WHERE e.queue = due.queue AND e.state = 2 AND e.id <> due.id
                            AND e.due_at > moment AND e.expires_at > moment);
    END IF;
    UPDATE oncekey.job j SET state = 2, fence = nextval('oncekey.fence'), due_at = moment + lease,
      -- One lease more than it lasts: a job whose courier is gone must still be there to be taken again.
      expires_at = greatest(j.expires_at, moment + 2 * lease)
    WHERE j.id = due.id AND j.place = due.place AND j.state IN (1, 2) AND j.due_at <= moment - overdue
      AND j.expires_at > moment;
    CONTINUE WHEN NOT found;
    wanted := wanted - 1;
    RETURN QUERY SELECT moment, j, m.message FROM oncekey.job j LEFT JOIN oncekey.job_message m ON m.id = j.id
                 WHERE j.id = due.id;
    bytes := bytes + coalesce((SELECT octet_length(m.message) FROM oncekey.job_message m WHERE m.id = due.id), 0);
  END LOOP;
END $$;

-- The end of an attempt: delivered (1), again (2), dead (3). `attempt` is its line behind the time, or empty if none was
-- made. 1 done, 2 lost, 3 ask again.
CREATE FUNCTION oncekey.end_attempt(
  skew int8, id bytea, fence int8, kind int2, attempt text, pause int8, why_dead text, keep_message bool)
RETURNS int2 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  moment int8 := oncekey.clock() + skew;
  queue  bytea;
BEGIN
  IF NOT oncekey.lock_job(id) THEN RETURN 3; END IF;
  UPDATE oncekey.job j SET
    attempts = j.attempts + (attempt <> '')::int4,
    tried = CASE WHEN attempt = '' THEN j.tried
      -- Ten are kept, a line each; the first one makes room.
      ELSE CASE WHEN j.attempts >= 10 THEN substr(j.tried, strpos(j.tried, E'\n') + 1) ELSE j.tried END
           || moment || attempt END,
    state = CASE kind WHEN 1 THEN 3 WHEN 2 THEN 1 ELSE 5 END,
    due_at = CASE kind WHEN 2 THEN moment + pause ELSE j.due_at END,
    expires_at = CASE kind WHEN 2 THEN greatest(j.expires_at, moment + pause) ELSE j.expires_at END,
    ended_at = CASE kind WHEN 2 THEN j.ended_at ELSE moment END,
    why_dead = CASE kind WHEN 3 THEN end_attempt.why_dead ELSE j.why_dead END,
    message_kept = kind <> 1 OR keep_message
  WHERE j.id = end_attempt.id AND j.state = 2 AND j.fence = end_attempt.fence AND j.expires_at > moment
  RETURNING j.queue INTO queue;
  IF NOT found THEN
    PERFORM oncekey.wait_for_standbys();
    RETURN 2;
  END IF;
  IF kind <> 2 AND queue IS NOT NULL THEN PERFORM oncekey.let_first_go(queue, moment); END IF;
  IF kind = 1 AND NOT keep_message THEN DELETE FROM oncekey.job_message m WHERE m.id = end_attempt.id; END IF;
  RETURN 1;
END $$;

-- What an operator decides: retry (1), drop (2). 1 done, 2 absent, 3 taken, 4 over, 5 the message is gone, 6 ask again.
CREATE FUNCTION oncekey.operate_job(skew int8, id bytea, action int2) RETURNS int2 LANGUAGE plpgsql
SET enable_seqscan = off SET jit = off SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  moment int8 := oncekey.clock() + skew;
  j      oncekey.job;
BEGIN
  IF NOT oncekey.lock_job(id) THEN RETURN 6; END IF;
  SELECT * INTO j FROM oncekey.job f WHERE f.id = operate_job.id AND f.expires_at > moment;
  IF NOT found THEN RETURN 2; END IF;
  IF j.state = 2 AND j.due_at > moment THEN RETURN 3; END IF;
  IF action = 1 THEN
    IF NOT j.message_kept THEN RETURN 5; END IF;
    UPDATE oncekey.job u SET state = 1, due_at = moment, ended_at = 0, why_dead = '',
      behind = j.behind AND j.state IN (1, 2),
      place = CASE WHEN j.state IN (1, 2) THEN j.place ELSE nextval('oncekey.job_place') END -- the end of its queue
    WHERE u.id = j.id;
  ELSE
    IF j.state IN (3, 4) THEN RETURN 4; END IF;
    UPDATE oncekey.job u SET state = 4, message_kept = false, ended_at = moment WHERE u.id = j.id;
    PERFORM oncekey.let_first_go(j.queue, moment);
    DELETE FROM oncekey.job_message m WHERE m.id = j.id;
  END IF;
  RETURN 1;
END $$;

CREATE FUNCTION oncekey.find_job(skew int8, id bytea) RETURNS SETOF oncekey.job_answer LANGUAGE sql VOLATILE
AS $$
  SELECT m.moment, j, t.message
  FROM (SELECT oncekey.clock() + skew AS moment) m, oncekey.job j LEFT JOIN oncekey.job_message t ON t.id = j.id
  WHERE j.id = find_job.id AND j.expires_at > m.moment
$$;

-- Deletes up to `most` jobs that have expired.
CREATE FUNCTION oncekey.forget_jobs(skew int8, most int4) RETURNS void LANGUAGE sql VOLATILE
AS $$
  WITH gone AS (
    DELETE FROM oncekey.job j WHERE j.id IN (
      SELECT e.id FROM oncekey.job e WHERE e.expires_at <= oncekey.clock() + skew AND oncekey.lock_queue(e.queue)
      ORDER BY e.expires_at LIMIT most FOR UPDATE SKIP LOCKED)
    RETURNING j.queue)
  SELECT oncekey.let_first_go(q.queue, oncekey.clock() + skew)
  FROM (SELECT DISTINCT g.queue FROM gone g WHERE g.queue IS NOT NULL) q
$$;

-- What operators need: to act on jobs as they have seen them, and to know which gateways there are.

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

-- Small texts that the gateways of a store keep for themselves, by name (src/store/common/store_note.h).
CREATE TABLE oncekey.note (
  name  text PRIMARY KEY,
  value bytea NOT NULL
) WITH (fillfactor = 10); -- replaced every few seconds: all versions stay on one page
)sql"
