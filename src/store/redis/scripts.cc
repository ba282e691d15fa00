#include "store/redis/script_call.h"

namespace oncekey::redis {
namespace {

// What every batch begins with: the marker, the time, the counter of fences.
constexpr std::string_view kBatchBegin = R"lua(
local KEYS, ARGV, type = KEYS, ARGV, type -- locals are found faster
local marker = redis.call('HMGET', KEYS[1], 'generation', 'replaces', 'tick', 'fence')
local tick = tonumber(marker[3]) or 0
-- A tick only grows: a smaller one than a gateway has seen is that of an older copy.
if marker[1] ~= ARGV[1] or tick < tonumber(ARGV[2]) then return {'LOST', marker[1], marker[2], marker[3]} end

local now = 0
if ARGV[3] ~= '' then
  now = tonumber(ARGV[3])
else
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end

local redis_call, sub = redis.pcall, string.sub

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

-- Fields of the marker that this batch sets and removes: of the keys that are not settled from now on, and of those that
-- are. The batch needs no further key for them, and no further command for a claim. Of one key there is one call in a batch.
local fields, filled, settled, emptied = {}, 0, {}, 0
local function set_field(name, value)
  fields[filled + 1], fields[filled + 2] = name, value
  filled = filled + 2
end
-- What a letter stands for, by how it begins: with a look at the record or job (of_found), or in its own way (verbs).
local verbs, of_found, lengths = {}, {}, {}
)lua";

constexpr std::string_view kRecordVerbs = R"lua(
local unpack_head, pack, byte = struct.unpack, struct.pack, string.byte
local band, bor = bit.band, bit.bor
local IN_PROGRESS, COMPLETED, INDETERMINATE = 1, 2, 3
local TOOK_OVER, RERUN, AWAITED, PARTIAL = 1, 2, 4, 8
local NUMBERS = '<BBBI8I8I8I8I8' -- all up to the token
-- Where they begin.
local FIRST_RECEIVED, EXPIRES_AT, FENCE, TOKEN, FINGERPRINT, TEXTS = 12, 20, 36, 44, 60, 96
local FORMAT = 1

local function note_open(key, r) set_field(key, decimal(r.lease_until) .. ' ' .. decimal(r.expires_at)) end
local function note_settled(key)
  emptied = emptied + 1
  settled[emptied] = key
end

lengths = {C = 2, T = 2, F = 1, R = 2, D = 2, P = 2, L = 1, H = 2, O = 3}

-- The bytes of a record; nothing; or an error in second place.
local function read_bytes(key)
  local value = redis_call('GET', key)
  if not value then return nil end
  if type(value) == 'table' then return nil, value end
  if #value < TEXTS - 1 then return nil, {err = 'CORRUPT a record that is too short'} end
  if byte(value) ~= FORMAT then return nil, {err = 'NEWERFORMAT ' .. byte(value)} end
  return value
end

local function read(key)
  local value, err = read_bytes(key)
  if not value then return nil, err end
  local r = {value = value}
  local _
  _, r.state, r.flags, r.settled_at, r.first_received, r.expires_at, r.lease_until, r.fence = unpack_head(NUMBERS, value)
  return r
end

-- An error, or nothing when all went well. `rest` is what follows the numbers.
local function write(key, r, rest)
  local done = redis_call('SET', key,
    pack(NUMBERS, FORMAT, r.state, r.flags, r.settled_at, r.first_received, r.expires_at, r.lease_until, r.fence) ..
      (rest or sub(r.value, TOKEN)), 'PX', string.format('%.0f', r.expires_at - now))
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
local function is_of(value, owner) return sub(value, FENCE, FENCE - 1 + #owner) == owner end
local function owns(r, owner)
  return r and not expired(r) and r.state == IN_PROGRESS and is_of(r.value, owner)
end
-- Where the texts end, and the answer begins.
local function answer_at(value) return TEXTS + unpack_head('<I4', value, TEXTS - 4) end
local function stay_for_the_lease(r) r.expires_at = math.max(r.expires_at, r.lease_until) end

-- After a write that settled a record: tells the gateways that wait for it.
local function tell(key, flags)
  if band(flags, AWAITED) ~= 0 then redis_call('PUBLISH', ARGV[5], sub(key, -64)) end
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

-- What first claims of one kind (retention and lease) have in common.
local kinds = {}
local function kind_of(times)
  local kind = kinds[times]
  if not kind then
    local retention, lease = unpack_head('<I8I8', times)
    local lives = math.max(retention, lease) -- a record stays while its owner may be at work
    kind = {lease_until = now + lease, expires_at = now + lives}
    kind.stays = decimal(lives)
    kind.open = decimal(kind.lease_until) .. ' ' .. decimal(kind.expires_at)
    kind.before_fence =
      sub(pack(NUMBERS, FORMAT, IN_PROGRESS, 0, 0, now, kind.expires_at, kind.lease_until, 0), 1, FENCE - 1)
    kinds[times] = kind
  end
  return kind
end

-- The value of a first claim, with the fence that take_fence() gives next.
local function first_of(kind, identity)
  return kind.before_fence .. pack('<I8', next_fence) .. identity
end

-- To be called once the value is written.
local function claimed_first(key, kind)
  set_field(key, kind.open)
  return take_fence() * 2
end

-- After a takeover: the token and the context of the new owner, route, key, method and target as they were.
local function of_new_owner(value, identity)
  local function context_at(bytes, at)
    for _ = 1, 4 do at = at + 2 + unpack_head('<I2', bytes, at) end
    return at
  end
  local begin = TEXTS - TOKEN + 1
  local texts = sub(value, TEXTS, context_at(value, TEXTS) - 1) .. sub(identity, context_at(identity, begin))
  return sub(identity, 1, begin - 5) .. pack('<I4', #texts) .. texts
end

local function claim_found(key, r, kind, take_over, identity)
  if free(r) then
    local done = redis_call('SET', key, first_of(kind, identity), 'PX', kind.stays)
    if done.err then return done end
    return claimed_first(key, kind)
  end
  if sub(r.value, FINGERPRINT, FINGERPRINT + 31) ~= sub(identity, 17, 48) or r.state ~= IN_PROGRESS or
     not lease_over(r) or not (take_over or has(r, RERUN)) then
    return r.value
  end
  r.fence = take_fence()
  r.lease_until = kind.lease_until
  r.settled_at = now
  set(r, TOOK_OVER)
  unset(r, RERUN)
  stay_for_the_lease(r)
  note_open(key, r)
  return write(key, r, of_new_owner(r.value, identity)) or r.fence * 2 + 1
end

-- Most claims find nothing, so the look and the write are one command. Redis 6 does not know it: there they are two.
local one_step = true
local function claim(key, at, take_over)
  local kind, identity = kind_of(ARGV[at]), ARGV[at + 1]
  local found
  if one_step then
    found = redis_call('SET', key, first_of(kind, identity), 'NX', 'GET', 'PX', kind.stays)
    if not found then return claimed_first(key, kind) end
    one_step = type(found) ~= 'table' or sub(found.err, 1, 3) ~= 'ERR'
    if one_step and type(found) == 'table' then return found end
  end
  if not one_step then
    found = redis_call('SET', key, first_of(kind, identity), 'NX', 'PX', kind.stays)
    if found and found.ok then return claimed_first(key, kind) end
    if found then return found end
  end
  local r, err = read(key)
  if err then return err end
  return claim_found(key, r, kind, take_over, identity)
end
function verbs.C(key, at) return claim(key, at, false) end
function verbs.T(key, at) return claim(key, at, true) end

function of_found.F(key, at, r)
  if free(r) then return false end
  if ARGV[at] == '1' and r.state == IN_PROGRESS and not has(r, AWAITED) then
    -- If the server is too full for this the waiter hears nothing, and looks again by itself in the end.
    redis_call('SETRANGE', key, 2, string.char(bor(r.flags, AWAITED)))
  end
  return r.value
end

function of_found.R(key, at, r)
  if not owns(r, ARGV[at]) then return 0 end
  r.lease_until = now + ARGV[at + 1]
  stay_for_the_lease(r)
  note_open(key, r)
  return write(key, r) or 1
end

-- Every request ends here, so it works on the bytes: only what changes is made anew. All records to complete are fetched
-- by one command; what that does not find is looked at by itself, since it hides errors.
local fetched
local function fetch_all()
  local keys, count, at = {}, 0, 7
  for i = 2, 1 + ARGV[6] do
    local letter = ARGV[at]
    if letter == 'D' or letter == 'P' then
      count = count + 1
      keys[count] = KEYS[i]
    end
    at = at + 1 + lengths[letter]
  end
  fetched = {}
  if count == 1 then return end
  local values = redis_call('MGET', unpack(keys))
  if values.err then return end
  for i = 1, count do fetched[keys[i]] = values[i] end
end
local heads = {} -- of records completed now, by their flags
local function complete(key, at, partial)
  if not fetched then fetch_all() end
  local value, err = fetched[key]
  if not value or #value < TEXTS - 1 or byte(value) ~= FORMAT then value, err = read_bytes(key) end
  if err then return err end
  if not value or not is_of(value, ARGV[at]) or now >= unpack_head('<I8', value, EXPIRES_AT) then return 0 end
  local state, flags = byte(value, 2, 3)
  local kept = band(flags, TOOK_OVER) + partial
  local head, rest
  if state == IN_PROGRESS or state == INDETERMINATE then
    head = heads[kept]
    if not head then
      head = pack('<BBBI8', FORMAT, COMPLETED, kept, now)
      heads[kept] = head
    end
    rest = sub(value, FIRST_RECEIVED)
  elseif state == COMPLETED and band(flags, PARTIAL) ~= 0 then
    head = string.char(FORMAT, COMPLETED, kept) .. sub(value, 4, FIRST_RECEIVED - 1)
    rest = sub(value, FIRST_RECEIVED, answer_at(value) - 1)
  else
    return 0
  end
  local done = redis_call('SET', key, head .. rest .. ARGV[at + 1], 'KEEPTTL')
  if done.err then return done end
  note_settled(key)
  tell(key, flags)
  return 1
end
function verbs.D(key, at) return complete(key, at, 0) end
function verbs.P(key, at) return complete(key, at, PARTIAL) end

function of_found.L(key, at, r)
  if not owns(r, ARGV[at]) then return 0 end
  if not has(r, TOOK_OVER) then
    note_settled(key)
    return delete(key, r, 1)
  end
  r.lease_until = now
  note_open(key, r)
  return settle(key, r, 1)
end

function of_found.H(key, at, r)
  if not owns(r, ARGV[at]) then return 0 end
  if ARGV[at + 1] == '1' and (not lease_over(r) or has(r, RERUN)) then return 0 end
  r.state = INDETERMINATE
  r.settled_at = now
  set_field(key, '0 ' .. decimal(r.expires_at))
  return settle(key, r, 1)
end

function of_found.O(key, at, r)
  if free(r) then return 1 end
  if r.state == COMPLETED then return 3 end
  if r.state == IN_PROGRESS and not lease_over(r) then return 2 end
  if ARGV[at] == 'hold' then
    if r.state == INDETERMINATE then return 0 end
    r.state = INDETERMINATE
    r.settled_at = now
    unset(r, RERUN)
    set_field(key, '0 ' .. decimal(r.expires_at))
    return settle(key, r, 0)
  end
  note_settled(key) -- or decided by an operator
  local rest
  if ARGV[at] == 'release' then
    return delete(key, r, 0)
  elseif ARGV[at] == 'complete' then
    r.state = COMPLETED
    r.settled_at = now
    unset(r, RERUN)
    if ARGV[at + 1] == '1' then set(r, PARTIAL) end
    rest = sub(r.value, TOKEN, answer_at(r.value) - 1) .. ARGV[at + 2]
  else
    r.state = IN_PROGRESS
    r.lease_until = now
    set(r, RERUN)
  end
  return settle(key, r, 0, rest)
end

)lua";

// What core/job_transitions.cc says, on hashes.
constexpr std::string_view kJobVerbs = R"lua(
local WAITING, TAKEN, DELIVERED, DROPPED, DEAD = 1, 2, 3, 4, 5
local ATTEMPTS_KEPT = 10
local base = sub(KEYS[1], 1, -7) -- without `marker`
local jobs, counts, expiry = base .. 'jobs', base .. 'job_counts', base .. 'job_expiry'
local function key_of(id) return base .. 'job:' .. id end
local function message_of(id) return base .. 'message:' .. id end
local function due_of(route) return base .. 'due:' .. route end
local function queue_of(id) return base .. 'order:' .. sub(id, -16) end
local function route_in(entry) return string.match(entry, '^%d (.*)$') end

-- A job; nothing; or an error in second place.
local function read(key)
  local flat = redis_call('HGETALL', key)
  if flat.err then return nil, flat end
  if #flat == 0 then return nil end
  local j = {}
  for i = 1, #flat, 2 do j[flat[i]] = flat[i + 1] end
  if j.format ~= '1' then return nil, {err = j.format and 'NEWERFORMAT ' .. j.format or 'CORRUPT a job without a format'} end
  j.state, j.due_at, j.expires_at = tonumber(j.state), tonumber(j.due_at), tonumber(j.expires_at)
  return j
end
local function gone(j) return not j or now >= j.expires_at end

-- Brings the indexes up to date with a job as it is now, or with nothing when it is gone. `jobs` has the state and the
-- route of each job that is open or dead, `counts` how many there are of each, `expiry` when they expire. Of each route
-- a sorted set has the jobs that may be taken, by when they are due. Jobs of one order stand in a sorted set of their
-- own, by their places; only the first of them may be taken.
local function index(id, j)
  local was = redis_call('HGET', jobs, id)
  local is = j and (j.state <= TAKEN or j.state == DEAD) and j.state .. ' ' .. j.route
  if is then
    redis_call('ZADD', expiry, decimal(j.expires_at), id)
    if was ~= is then
      redis_call('HSET', jobs, id, is)
      redis_call('HINCRBY', counts, is, 1)
    end
  elseif was then -- first, since a full server refuses none of these
    redis_call('HDEL', jobs, id)
    redis_call('ZREM', expiry, id)
  end
  if was and was ~= is and redis_call('HINCRBY', counts, was, -1) <= 0 then redis_call('HDEL', counts, was) end
  local queue = queue_of(id)
  if is and j.state ~= DEAD then
    if j.ordered == '1' then
      if not redis_call('ZSCORE', queue, id) then
        redis_call('ZADD', queue, redis_call('HINCRBY', jobs, 'places', 1), id)
      end
      if redis_call('ZRANGE', queue, 0, 0)[1] ~= id then return end
    end
    redis_call('ZADD', due_of(j.route), decimal(j.due_at), id)
  elseif was then
    redis_call('ZREM', due_of(route_in(was)), id)
    if redis_call('ZREM', queue, id) ~= 1 then return end
    local first = redis_call('ZRANGE', queue, 0, 0)[1]
    local entry = first and redis_call('HGET', jobs, first)
    if entry then
      redis_call('ZADD', due_of(route_in(entry)), redis_call('HGET', key_of(first), 'due_at') or decimal(now), first)
    end
  end
end

-- Writes some fields of a job; an error, or nothing when all went well. Only a first write can fail.
local function write(id, j, changes)
  local fields = {'state', j.state, 'due_at', decimal(j.due_at), 'expires_at', decimal(j.expires_at)}
  for name, value in pairs(changes) do
    fields[#fields + 1] = name
    fields[#fields + 1] = value
  end
  local done = redis_call('HSET', key_of(id), unpack(fields))
  if type(done) == 'table' then return done end
  local lives = decimal(j.expires_at - now)
  redis_call('PEXPIRE', key_of(id), lives)
  redis_call('PEXPIRE', message_of(id), lives)
  index(id, j)
end

lengths = {S = 7, T = 4, E = 6, O = 3, F = 0}

function of_found.S(_, at, j, id)
  local fingerprint, route, event, ordered, delay, retention, message = unpack(ARGV, at, at + 6)
  if not gone(j) then return {0, j.fingerprint} end
  index(id, nil)
  local due_at = now + delay
  j = {state = WAITING, route = route, ordered = ordered, due_at = due_at,
    expires_at = math.max(now + retention, due_at)}
  local done = redis_call('SET', message_of(id), message)
  if done.err then return done end
  return write(id, j, {format = '1', fingerprint = fingerprint, ordered = ordered, message_kept = '1', fence = '0',
    attempts = '0', staged_at = decimal(now), ended_at = '0', tried = '',
    why_dead = '', route = route, key = event}) or {1, fingerprint}
end

-- Its key names the partition alone.
function verbs.T(_, at)
  local due, limit, lease, latest = due_of(ARGV[at]), ARGV[at + 1], tonumber(ARGV[at + 2]), now - ARGV[at + 3]
  for _, id in ipairs(redis_call('ZRANGEBYSCORE', expiry, '-inf', decimal(now), 'LIMIT', 0, 100)) do index(id, nil) end
  local taken, bytes, failed = {0}, 0
  for _, id in ipairs(redis_call('ZRANGEBYSCORE', due, '-inf', decimal(latest), 'LIMIT', 0, limit)) do
    local j, err = read(key_of(id))
    local is_due = j and not gone(j) and j.state <= TAKEN and j.due_at <= latest
    local message = is_due and redis_call('GET', message_of(id))
    if is_due and type(message) ~= 'string' then err = message or {err = 'CORRUPT a job without its message'} end
    if err then
      -- One that cannot be read must not keep the others from being taken.
      failed = {err = err.err .. ' (job ' .. id .. ')'}
      redis_call('ZADD', due, decimal(now + 60000), id)
    elseif not j then
      -- On its way to another server with its slot. One that has expired is not found here any more.
      redis_call('ZADD', due, decimal(now + 1000), id)
    elseif not is_due then
      index(id, not gone(j) and j or nil)
    else
      j.state, j.due_at = TAKEN, now + lease
      -- One lease more than it lasts: a job whose courier is gone must still be there to be taken again.
      j.expires_at = math.max(j.expires_at, now + 2 * lease)
      failed = write(id, j, {fence = decimal(take_fence())})
      if failed then break end
      taken[#taken + 1] = id
      taken[#taken + 1] = redis_call('HGETALL', key_of(id))
      taken[#taken + 1] = message
      bytes = bytes + #message
      if bytes > 4194304 then break end -- what a slow connection carries within a call's time
    end
  end
  taken[1] = redis_call('ZCARD', due)
  return #taken == 1 and failed or taken
end

function of_found.E(_, at, j, id)
  local fence, kind, attempt, pause, why_dead, keep = unpack(ARGV, at, at + 5)
  if gone(j) or j.state ~= TAKEN or j.fence ~= fence then return 0 end
  local changes = {}
  if attempt ~= '' then
    -- Those that are kept have a line each; the first one makes room.
    local tried = tonumber(j.attempts) >= ATTEMPTS_KEPT and sub(j.tried, string.find(j.tried, '\n') + 1) or j.tried
    changes = {attempts = decimal(j.attempts + 1), tried = tried .. decimal(now) .. attempt}
  end
  if kind == 'again' then
    j.state, j.due_at = WAITING, now + pause
    j.expires_at = math.max(j.expires_at, j.due_at)
  else
    j.state = kind == 'delivered' and DELIVERED or DEAD
    changes.ended_at = decimal(now)
  end
  if kind == 'dead' then changes.why_dead = why_dead end
  local forget = kind == 'delivered' and keep ~= '1'
  if forget then changes.message_kept = '0' end
  local failed = write(id, j, changes)
  if failed then return failed end
  if forget then redis_call('DEL', message_of(id)) end
  return 1
end

function of_found.O(_, at, j, id)
  if gone(j) then return 1 end
  local seen_state, seen_fence = ARGV[at + 1], ARGV[at + 2]
  if seen_fence ~= '' and (j.state ~= tonumber(seen_state) or j.fence ~= seen_fence) then return 5 end
  if j.state == TAKEN and now < j.due_at then return 2 end
  if ARGV[at] == 'retry' then
    if j.message_kept ~= '1' then return 4 end
    j.state, j.due_at = WAITING, now
    return write(id, j, {ended_at = '0', why_dead = ''}) or 0
  end
  if j.state == DELIVERED or j.state == DROPPED then return 3 end
  j.state = DROPPED
  local failed = write(id, j, {message_kept = '0', ended_at = decimal(now)})
  if failed then return failed end
  redis_call('DEL', message_of(id))
  return 0
end

function of_found.F(key, _, j, id)
  return not gone(j) and {redis_call('HGETALL', key), redis_call('GET', message_of(id))}
end
)lua";

// Answers the calls and saves what the verbs have gathered.
constexpr std::string_view kBatchEnd = R"lua(
local answers = {now, tick}
local at = 7
for i = 2, 1 + ARGV[6] do -- the keys after these are named for the sake of a cluster
  local letter, key = ARGV[at], KEYS[i]
  local verb = verbs[letter]
  if verb then
    answers[i + 1] = verb(key, at + 1)
  else
    local found, err = read(key)
    answers[i + 1] = err or of_found[letter](key, at + 1, found, sub(key, -64))
  end
  at = at + 1 + lengths[letter]
end
-- Saved in the same step as the claims. A server that was too full for this was too full for them.
if given ~= (tonumber(marker[4]) or 0) then set_field('fence', decimal(given)) end
if filled > 0 then redis_call('HSET', KEYS[1], unpack(fields)) end
if emptied > 0 then redis_call('HDEL', KEYS[1], unpack(settled)) end
-- Counted after the calls: a full server then refuses calls one by one, and not the batch.
if ARGV[4] == '1' then
  local counted = redis_call('HINCRBY', KEYS[1], 'tick', 1)
  if type(counted) == 'number' then answers[2] = counted end
end
return answers
)lua";

} // namespace

const std::string& text_of(Script script) {
  static const std::string records = std::string(kBatchBegin).append(kRecordVerbs).append(kBatchEnd);
  static const std::string jobs = std::string(kBatchBegin).append(kJobVerbs).append(kBatchEnd);
  return script == Script::records ? records : jobs;
}

} // namespace oncekey::redis
