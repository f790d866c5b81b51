-- What all scripts share. KEYS[1] begins the name of every key; times are
-- microseconds of the server's clock; a record's name is tenant:key, escaped.
local P, call = KEYS[1], redis.call

local STATES = {'running', 'waiting', 'parked', 'done', 'failed', 'dead', 'in_doubt'}
local ENDED = {'done', 'failed', 'dead', 'in_doubt'}
local HELD = {running = true, waiting = true} -- by a replica
local SPENT = {done = true, failed = true}    -- goes when room is needed

local function clock()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

local function text(n) return string.format('%.0f', n) end

local function tenant(name) return string.match(name, '^[^:]*') end

-- alive says whether a replica has its lease.
local function alive(replica, now)
  local till = call('ZSCORE', P .. 'leases', replica)
  return till and tonumber(till) > now
end

-- current is all that is known of a record, and with whole its answer; nil: there is
-- none.
local function current(name, whole)
  local r = call('HMGET', P .. 'rec:' .. name, 'version', 'owner', 'state', 'replica', 'mark', 'kept', 'data')
  if not r[1] then return nil end
  r[8], r[9], r[10], r[11] = name, '', '', ''
  if not whole then
    r[6] = ''
  elseif r[6] == '1' then
    local a = call('HMGET', P .. 'ans:' .. name, 'fields', 'body', 'sealed')
    r[9], r[10], r[11] = a[1] or '', a[2] or '', a[3] or ''
  end
  return r
end

-- resize counts the answer of a record anew; order is when it was stored.
local function resize(name, size, order)
  local old = tonumber(call('HGET', P .. 'sizes', name) or 0)
  if size > 0 then
    call('HSET', P .. 'sizes', name, size)
    call('ZADD', P .. 'answers', order, name)
  elseif old > 0 then
    call('HDEL', P .. 'sizes', name)
    call('ZREM', P .. 'answers', name)
  end
  if size ~= old then call('HINCRBY', P .. 'count', 'bytes', size - old) end
end

-- remove takes an ended record away, also one whose key has expired by itself.
local function remove(name)
  local rec, t = P .. 'rec:' .. name, tenant(name)
  local receipt = call('HGET', rec, 'receipt')
  for _, state in ipairs(ENDED) do call('ZREM', P .. 'state:' .. state, name) end
  call('ZREM', P .. 'due', name)
  call('ZREM', P .. 'expires', name)
  call('ZREM', P .. 'spent:' .. t, name)
  resize(name, 0)
  if call('HINCRBY', P .. 'tenants', t, -1) <= 0 then call('HDEL', P .. 'tenants', t) end
  if receipt and receipt ~= '' then call('DEL', P .. 'receipt:' .. receipt) end
  call('DEL', rec, P .. 'req:' .. name, P .. 'ans:' .. name)
end

-- early counts what goes before its time.
local function early(name, now)
  local till = call('ZSCORE', P .. 'expires', name)
  if till and tonumber(till) > now then call('HINCRBY', P .. 'count', 'early', 1) end
end

local function evict(name, now)
  early(name, now)
  remove(name)
end

-- reclaim removes at most n records whose time is over, and says how many.
local function reclaim(n, now)
  local over = call('ZRANGEBYSCORE', P .. 'expires', '-inf', text(now), 'LIMIT', 0, n)
  for _, name in ipairs(over) do remove(name) end
  return #over
end

-- oldest is the record that ended first of those that may be evicted.
local function oldest()
  local a = call('ZRANGE', P .. 'state:done', 0, 0, 'WITHSCORES')
  local b = call('ZRANGE', P .. 'state:failed', 0, 0, 'WITHSCORES')
  if not a[1] or b[1] and tonumber(b[2]) < tonumber(a[2]) then return b[1] end
  return a[1]
end

local function total()
  local n = 0
  for _, state in ipairs(STATES) do n = n + call('ZCARD', P .. 'state:' .. state) end
  return n
end

-- fit evicts at most n records until there are no more than limit; false: some
-- that are too many may not be evicted.
local function fit(limit, n, now)
  for _ = 1, math.min(total() - limit, n) do
    local name = oldest()
    if not name then return false end
    evict(name, now)
  end
  return true
end

-- shrink takes the oldest answers, at most n, until the rest fits; markers stay.
local function shrink(limit, n, now)
  if limit == 0 then return end
  for _ = 1, n do
    if tonumber(call('HGET', P .. 'count', 'bytes') or 0) <= limit then return end
    local name = call('ZRANGE', P .. 'answers', 0, 0)[1]
    if not name then
      call('HSET', P .. 'count', 'bytes', 0)
      return
    end
    early(name, now)
    resize(name, 0)
    call('DEL', P .. 'ans:' .. name)
    if call('EXISTS', P .. 'rec:' .. name) == 1 then
      call('HSET', P .. 'rec:' .. name, 'kept', '')
      call('HINCRBY', P .. 'rec:' .. name, 'version', 1)
    end
  end
end

-- forget takes at most n calls out of the history: those that ended until a time,
-- and what is more than most.
local function forget(most, till, n)
  local function drop(ids)
    for _, id in ipairs(ids) do
      call('HDEL', P .. 'calls:data', id)
      call('ZREM', P .. 'calls', id)
    end
  end
  drop(call('ZRANGEBYSCORE', P .. 'calls', '-inf', till, 'LIMIT', 0, n))
  local over = most > 0 and call('ZCARD', P .. 'calls') - most or 0
  if over > 0 then drop(call('ZRANGE', P .. 'calls', 0, math.min(over, n) - 1)) end
end
