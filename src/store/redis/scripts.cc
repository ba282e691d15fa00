#include "store/redis/scripts.h"

namespace oncekey::redis {

const std::string_view kBatchScript = R"lua(
local marker = redis.call('HMGET', KEYS[1], 'generation', 'replaces', 'tick', 'fence')
local tick = tonumber(marker[3]) or 0
-- A tick only grows: one that is smaller than somebody has seen is that of an older copy.
if marker[1] ~= ARGV[1] or tick < tonumber(ARGV[2]) then return {'LOST', marker[1], marker[2], marker[3]} end

local now = 0
if ARGV[3] ~= '' then
  now = tonumber(ARGV[3])
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local channel = ARGV[5]

local redis_call, unpack_head, pack = redis.pcall, struct.unpack, struct.pack
local band, bor, sub = bit.band, bit.bor, string.sub
local IN_PROGRESS, COMPLETED, INDETERMINATE = 1, 2, 3
local TOOK_OVER, RERUN, AWAITED, PARTIAL, STAGED, ORDERED, RESTING = 1, 2, 4, 8, 16, 32, 64
local NUMBERS = '<BBBI8I8I8I8I8I2' -- all up to the fingerprint
local FENCE = 4                    -- where it begins
local FINGERPRINT, TEXTS = 46, 98  -- where they begin
local FORMAT = 1

-- The next fence of this partition. The counter is never behind the time in microseconds: a replica that becomes the
-- master without the last writes begins above every number given before (store/common/fences.h).
local given = tonumber(marker[4]) or 0
local next_fence = math.max(given + 1, now * 1000)
local function take_fence()
  given = next_fence
  next_fence = next_fence + 1
  return given
end

local function decimal(number) return string.format('%.0f', number) end

-- The keys of this batch that are not settled from now on, by their ids; false for those that are. At the end they go
-- into fields of the marker: the batch needs no further key for it, and no further command for a claim.
local unsettled = {}
local function note_open(key, r) unsettled[sub(key, -64)] = decimal(r.lease_until) .. ' ' .. decimal(r.expires_at) end
local function note_settled(key) unsettled[sub(key, -64)] = false end

-- The bytes of a record; nothing; or an error in second place.
local function read_bytes(key)
  local value = redis_call('GET', key)
  if not value then return nil end
  if type(value) == 'table' then return nil, value end
  if #value < TEXTS - 1 then return nil, {err = 'CORRUPT a record that is too short'} end
  if value:byte(1) ~= FORMAT then return nil, {err = 'NEWERFORMAT ' .. value:byte(1)} end
  return value
end

local function read(key)
  local value, err = read_bytes(key)
  if not value then return nil, err end
  local r = {value = value}
  local _
  _, r.state, r.flags, r.fence, r.first_received, r.expires_at, r.lease_until, r.settled_at, r.status =
    unpack_head(NUMBERS, value)
  return r
end

-- An error, or nothing when all went well. `rest` is what follows the numbers.
local function write(key, r, rest)
  local done = redis_call('SET', key,
    pack(NUMBERS, FORMAT, r.state, r.flags, r.fence, r.first_received, r.expires_at, r.lease_until, r.settled_at,
      r.status) .. (rest or sub(r.value, FINGERPRINT)), 'PX', string.format('%.0f', r.expires_at - now))
  if done.err then return done end
end

local function has(r, flag) return band(r.flags, flag) ~= 0 end
local function set(r, flag) r.flags = bor(r.flags, flag) end
local function unset(r, flag) r.flags = band(r.flags, bit.bnot(flag)) end

local function expired(r) return now >= r.expires_at end
local function free(r) return not r or expired(r) end
local function lease_over(r) return now >= r.lease_until end
-- `owner` is a fence, with the token behind it where that is known: a replica whose clock is behind that of the lost
-- master could give a fence again.
local function is_of(value, owner)
  return sub(value, FENCE, FENCE + 7) == sub(owner, 1, 8) and (#owner == 8 or sub(value, 78, 93) == sub(owner, 9))
end
local function owns(r, owner)
  return r and not expired(r) and r.state == IN_PROGRESS and is_of(r.value, owner) and not has(r, STAGED)
end
-- Fingerprint, token and texts: what stays when the response or message after them is another one.
local function identity_of(value) return sub(value, FINGERPRINT, TEXTS - 1 + unpack_head('<I4', value, 94)) end
local function stay_for_the_lease(r) r.expires_at = math.max(r.expires_at, r.lease_until) end

-- After a write that settled a record: tells those who wait for it.
local function tell(key, flags)
  if band(flags, AWAITED) ~= 0 then redis_call('PUBLISH', channel, sub(key, -64)) end
end
local function delete(key, r, answer)
  local done = redis_call('DEL', key)
  if type(done) == 'table' then return done end
  tell(key, r.flags)
  return answer
end
local function settle(key, r, answer, rest)
  local before = r.flags
  unset(r, AWAITED)
  local err = write(key, r, rest)
  if err then return err end
  tell(key, before)
  return answer
end

-- Jobs. For each route a partition has a sorted set of those that may be taken, by when they are due, and for all of them
-- a hash with the expiry and the route of each. Jobs of one order stand in a sorted set of their own, by their places; only the first may be taken.
local base = sub(KEYS[1], 1, -7) -- without `marker`
local jobs = base .. 'jobs'
local function due_of(route) return base .. 'due:' .. route end
local function queue_of(id) return base .. 'order:' .. sub(id, -16) end
local function route_of(value) return sub(value, TEXTS + 2, TEXTS + 1 + unpack_head('<I2', value, TEXTS)) end

local function remove_job(id)
  local kept = redis_call('HGET', jobs, id)
  if not kept then return end
  redis_call('ZREM', due_of(string.match(kept, '^%d+ (.*)$')), id)
  redis_call('HDEL', jobs, id)
  local queue = queue_of(id)
  if redis_call('ZREM', queue, id) ~= 1 then return end
  local first = redis_call('ZRANGE', queue, 0, 0)[1]
  if not first then return end
  local r = read(base .. first)
  local route = string.match(redis_call('HGET', jobs, first) or '', '^%d+ (.*)$')
  if route then redis_call('ZADD', due_of(route), decimal(r and r.lease_until or now), first) end
end

-- After a write of a job's record; `value` has its texts.
local function note_job(key, r, value)
  local id = sub(key, -64)
  if r.state ~= IN_PROGRESS then return remove_job(id) end
  local route = route_of(value)
  redis_call('HSET', jobs, id, decimal(r.expires_at) .. ' ' .. route)
  if has(r, ORDERED) then
    local queue = queue_of(id)
    if not redis_call('ZSCORE', queue, id) then
      redis_call('ZADD', queue, redis_call('HINCRBY', jobs, 'places', 1), id)
    end
    if redis_call('ZRANGE', queue, 0, 0)[1] ~= id then return end
  end
  redis_call('ZADD', due_of(route), decimal(r.lease_until), id)
end

local verbs = {}
local lengths = {C = 3, F = 1, R = 2, D = 4, L = 1, H = 2, O = 4, S = 4, T = 3, E = 5}

-- What first claims of one kind (retention and lease) have in common.
local kinds = {}
local function kind_of(times)
  local kind = kinds[times]
  if not kind then
    local retention, lease = unpack_head('<I8I8', times)
    local lives = math.max(retention, lease) -- nobody may forget a record while its owner may be at work
    kind = {lease_until = now + lease, expires_at = now + lives}
    kind.stays = decimal(lives)
    kind.open = decimal(kind.lease_until) .. ' ' .. decimal(kind.expires_at)
    local first = pack(NUMBERS, FORMAT, IN_PROGRESS, 0, 0, now, kind.expires_at, kind.lease_until, 0, 0)
    kind.before_fence, kind.after_fence = sub(first, 1, FENCE - 1), sub(first, FENCE + 8)
    kinds[times] = kind
  end
  return kind
end

-- The value of a first claim, with the fence that take_fence() gives next.
local function first_of(kind, identity)
  return kind.before_fence .. pack('<I8', next_fence) .. kind.after_fence .. identity
end

local function claim_found(key, r, kind, take_over, identity)
  if free(r) then
    local done = redis_call('SET', key, first_of(kind, identity), 'PX', kind.stays)
    if done.err then return done end
    unsettled[sub(key, -64)] = kind.open
    return take_fence() * 2
  end
  if sub(r.value, FINGERPRINT, FINGERPRINT + 31) ~= sub(identity, 1, 32) or r.state ~= IN_PROGRESS or
     not lease_over(r) or not (take_over or has(r, RERUN)) or has(r, STAGED) then
    return r.value
  end
  r.fence = take_fence()
  r.lease_until = kind.lease_until
  r.settled_at = now
  set(r, TOOK_OVER)
  unset(r, RERUN)
  stay_for_the_lease(r)
  note_open(key, r)
  -- Token and texts are the new owner's.
  return write(key, r, identity) or
    r.fence * 2 + 1
end

-- Most claims find nothing, so the look and the write are one command. Redis 6 does not know it: there they are two.
local one_step = true
function verbs.C(key, at)
  local kind = kind_of(ARGV[at])
  local found
  if one_step then
    found = redis_call('SET', key, first_of(kind, ARGV[at + 2]), 'NX', 'GET', 'PX', kind.stays)
    if not found then
      unsettled[sub(key, -64)] = kind.open
      return take_fence() * 2
    end
    one_step = type(found) ~= 'table' or sub(found.err, 1, 3) ~= 'ERR'
    if one_step and type(found) == 'table' then return found end
  end
  if not one_step then
    found = redis_call('SET', key, first_of(kind, ARGV[at + 2]), 'NX', 'PX', kind.stays)
    if found and found.ok then
      unsettled[sub(key, -64)] = kind.open
      return take_fence() * 2
    end
    if found then return found end
  end
  local r, err = read(key)
  if err then return err end
  return claim_found(key, r, kind, ARGV[at + 1] == '1', ARGV[at + 2])
end

function verbs.F(key, at)
  local r, err = read(key)
  if err then return err end
  if free(r) then return false end
  if ARGV[at] == '1' and r.state == IN_PROGRESS and not has(r, AWAITED) then
    -- If the server is too full for this the waiter hears nothing, and looks again by itself in the end.
    redis_call('SETRANGE', key, 2, string.char(bor(r.flags, AWAITED)))
  end
  return r.value
end

function verbs.R(key, at)
  local r, err = read(key)
  if err then return err end
  if not owns(r, ARGV[at]) then return 0 end
  r.lease_until = now + ARGV[at + 1]
  stay_for_the_lease(r)
  note_open(key, r)
  return write(key, r) or 1
end

-- Every request ends here, so it works on the bytes: only what changes is made anew.
local now_bytes = pack('<I8', now)
function verbs.D(key, at)
  local value, err = read_bytes(key)
  if err then return err end
  if not value or not is_of(value, ARGV[at]) or now >= unpack_head('<I8', value, 20) then return 0 end
  local state, flags = value:byte(2, 3)
  if band(flags, STAGED) ~= 0 then return 0 end
  local settled_at, rest
  if state == IN_PROGRESS or state == INDETERMINATE then
    settled_at, rest = now_bytes, sub(value, FINGERPRINT)
  elseif state == COMPLETED and band(flags, PARTIAL) ~= 0 then
    settled_at, rest = sub(value, 36, 43), identity_of(value)
  else
    return 0
  end
  local kept = band(flags, TOOK_OVER) + ARGV[at + 2] * PARTIAL
  local done = redis_call('SET', key, string.char(FORMAT, COMPLETED, kept) .. sub(value, 4, 35) .. settled_at ..
    ARGV[at + 1] .. rest .. ARGV[at + 3], 'KEEPTTL')
  if done.err then return done end
  note_settled(key)
  tell(key, flags)
  return 1
end

function verbs.L(key, at)
  local r, err = read(key)
  if err then return err end
  if not owns(r, ARGV[at]) then return 0 end
  if not has(r, TOOK_OVER) then
    note_settled(key)
    return delete(key, r, 1)
  end
  r.lease_until = now
  note_open(key, r)
  return settle(key, r, 1)
end

function verbs.H(key, at)
  local r, err = read(key)
  if err then return err end
  if not owns(r, ARGV[at]) then return 0 end
  if ARGV[at + 1] == '1' and (not lease_over(r) or has(r, RERUN)) then return 0 end
  r.state = INDETERMINATE
  r.settled_at = now
  unsettled[sub(key, -64)] = '0 ' .. decimal(r.expires_at)
  return settle(key, r, 1)
end

function verbs.O(key, at)
  local r, err = read(key)
  if err then return err end
  if free(r) then return 1 end
  local job = has(r, STAGED)
  if r.state == COMPLETED and not (job and ARGV[at] == 'rerun') then return 3 end
  if r.state == IN_PROGRESS and not lease_over(r) and not has(r, RESTING) then return 2 end
  if not job then note_settled(key) end -- or decided by an operator
  local rest
  if ARGV[at] == 'release' then
    local answer = delete(key, r, 0)
    if job and answer == 0 then remove_job(sub(key, -64)) end
    return answer
  elseif ARGV[at] == 'complete' then
    r.state = COMPLETED
    r.settled_at = now
    unset(r, RERUN)
    unset(r, RESTING)
    r.status = unpack_head('<I2', ARGV[at + 1])
    if ARGV[at + 2] == '1' then set(r, PARTIAL) end
    rest = identity_of(r.value) .. ARGV[at + 3]
  else
    r.state = IN_PROGRESS
    r.lease_until = now
    set(r, job and RESTING or RERUN)
  end
  local answer = settle(key, r, 0, rest)
  if job and answer == 0 then note_job(key, r, r.value) end
  return answer
end

-- Remembers the key and stages the job.
function verbs.S(key, at)
  local r, err = read(key)
  if err then return err end
  if not free(r) then return r.value end
  local kind = kind_of(ARGV[at])
  local job = {state = IN_PROGRESS, flags = tonumber(ARGV[at + 2]), lease_until = kind.lease_until,
    expires_at = kind.expires_at}
  local fence = take_fence()
  local value = pack(NUMBERS, FORMAT, IN_PROGRESS, job.flags, fence, now, kind.expires_at, kind.lease_until, 0, 0) ..
    ARGV[at + 1] .. ARGV[at + 3]
  local done = redis_call('SET', key, value, 'PX', kind.stays)
  if done.err then return done end
  note_job(key, job, value)
  return fence * 2
end

-- Its key names the partition alone. Answers with the number of jobs that may be taken now or later, and then the ids
-- and records taken, one after another.
function verbs.T(_, at)
  local due = due_of(ARGV[at])
  local taken = {redis_call('ZCARD', due)}
  local ids = redis_call('ZRANGEBYSCORE', due, '-inf', decimal(now), 'LIMIT', 0, ARGV[at + 1])
  if ids.err then return ids end
  local failed
  for _, id in ipairs(ids) do
    local key = base .. id
    local r, err = read(key)
    if err then
      -- One that cannot be read must not keep the others from being taken.
      failed = {err = err.err .. ' (job ' .. id .. ')'}
      redis_call('ZADD', due, decimal(now + 60000), id)
    elseif not r then
      -- On its way to another server with its slot, or expired.
      local expiry = tonumber(string.match(redis_call('HGET', jobs, id) or '0', '^%d+'))
      if expiry <= now then remove_job(id) else redis_call('ZADD', due, decimal(now + 1000), id) end
    elseif expired(r) or r.state ~= IN_PROGRESS then
      remove_job(id)
    elseif lease_over(r) then
      r.fence = take_fence()
      r.lease_until = now + ARGV[at + 2]
      unset(r, RESTING)
      -- One lease more than it lasts: a job whose taker is gone must still be there to be taken again.
      r.expires_at = math.max(r.expires_at, now + 2 * ARGV[at + 2])
      local not_written = write(key, r)
      if not_written then
        failed = not_written
        break
      end
      note_job(key, r, r.value)
      taken[#taken + 1] = id
      taken[#taken + 1] = redis_call('GET', key)
    else
      redis_call('ZADD', due, decimal(r.lease_until), id)
    end
  end
  return #taken == 1 and failed or taken
end

-- The end of an attempt at a job.
function verbs.E(key, at)
  local r, err = read(key)
  if err then return err end
  if not r or expired(r) or r.state ~= IN_PROGRESS or not has(r, STAGED) or has(r, RESTING) or
     sub(r.value, FENCE, FENCE + 7) ~= ARGV[at] then
    return 0
  end
  if ARGV[at + 1] == 'again' then
    r.lease_until = now + ARGV[at + 2]
    set(r, RESTING)
    stay_for_the_lease(r)
  else
    r.state = ARGV[at + 1] == 'completed' and COMPLETED or INDETERMINATE
    r.settled_at = now
  end
  r.status = unpack_head('<I2', ARGV[at + 3])
  local failed = write(key, r, identity_of(r.value) .. ARGV[at + 4])
  if failed then return failed end
  note_job(key, r, r.value)
  return 1
end

local answers = {now, tick}
local at = 7
for i = 2, 1 + ARGV[6] do -- the keys after these are named for the sake of a cluster
  local verb = ARGV[at]
  answers[i + 1] = verbs[verb](KEYS[i], at + 1)
  at = at + 1 + lengths[verb]
end
-- Saved in the same step as the claims. A server that was too full for this was too full for them.
local fields, gone = {}, {}
if given ~= (tonumber(marker[4]) or 0) then fields = {'fence', decimal(given)} end
for id, value in pairs(unsettled) do
  if value then
    fields[#fields + 1] = 'open:' .. id
    fields[#fields + 1] = value
  else
    gone[#gone + 1] = 'open:' .. id
  end
end
if #fields > 0 then redis_call('HSET', KEYS[1], unpack(fields)) end
if #gone > 0 then redis_call('HDEL', KEYS[1], unpack(gone)) end
-- Counted after the calls: a full server then refuses calls one by one, and not the batch.
if ARGV[4] == '1' then
  local counted = redis_call('HINCRBY', KEYS[1], 'tick', 1)
  if type(counted) == 'number' then answers[2] = counted end
end
return answers
)lua";

const std::string_view kForgetFieldScript = R"lua(
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('HDEL', KEYS[1], ARGV[1])
)lua";

const std::string_view kCreateScript = R"lua(
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'secret', ARGV[2], 'generation', ARGV[3], 'replaces', '', 'ready', '0',
    'lost', '0')
end
return redis.call('HMGET', KEYS[1], 'format', 'secret', 'generation', 'replaces', 'ready', 'lost')
)lua";

const std::string_view kMarkScript = R"lua(
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('HSET', KEYS[1], 'generation', ARGV[1], 'replaces', '', 'tick', '0')
end
return redis.call('HGET', KEYS[1], 'generation')
)lua";

const std::string_view kIdentityScript = R"lua(
-- A store that was just emptied is made anew by its gateways, not by this.
if redis.call('HEXISTS', KEYS[1], 'generation') == 0 then return 1 end
if (redis.call('HGET', KEYS[1], 'identity') or '') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'identity', ARGV[2])
return 1
)lua";

const std::string_view kNoteLossScript = R"lua(
local generation = redis.call('HGET', KEYS[1], 'generation')
if (generation or '') ~= ARGV[4] then return 0 end
if generation then
  redis.call('HSET', KEYS[1], 'lost', '1')
else
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'secret', ARGV[2], 'generation', ARGV[3], 'replaces', '', 'ready', '1',
    'lost', '1')
end
return 1
)lua";

} // namespace oncekey::redis
