-- put writes a record if it is as the caller knows it. It may be sent twice: the
-- mark tells that it was done. Answers: ok; found and what is there; gone; full;
-- late: sent too long ago; foreign: another replica runs it.
-- how: own, what nobody or this replica runs; adopt, what one runs that is gone;
-- leave, whose it is and stays, and so does the mark of its last change: whoever made
-- that may not know yet that he did.
local me, name, version, owner, mark, how = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local till, lease, entries, bytes = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])
local state, updated, due, expires, parked, receipt = ARGV[11], ARGV[14], ARGV[15], ARGV[16], ARGV[17], ARGV[18]
local keep = tonumber(ARGV[19]) -- milliseconds, when the key goes though nobody sweeps

local now, t, rec, req, ans = clock(), tenant(name), P .. 'rec:' .. name, P .. 'req:' .. name, P .. 'ans:' .. name
local o = call('HMGET', rec, 'version', 'owner', 'state', 'replica', 'mark', 'receipt', 'expires', 'host')
local known, was = o[1], o[3]
if known and o[5] == mark then return {'ok'} end
if now > till then return {'late'} end
if known and (known ~= version or o[2] ~= owner) then return {'found', current(name, true)} end
if not known and version ~= '' then return {'gone'} end
if HELD[was] and (how == 'adopt' and (o[4] == me or alive(o[4], now)) or how == 'own' and o[4] ~= me) then return {'foreign'} end

-- room for one more; of a tenant no more than half
if not known then
  if call('ZSCORE', P .. 'expires', name) then remove(name) end -- its key went by itself, and nobody has swept
  reclaim(2, now)
  if entries > 0 then
    if tonumber(call('HGET', P .. 'tenants', t) or 0) >= math.max(1, math.floor(entries / 2)) then
      local spent = call('ZRANGE', P .. 'spent:' .. t, 0, 0)[1]
      if not spent then return {'full'} end
      evict(spent, now)
    end
    if not fit(entries - 1, 64, now) then return {'full'} end
  end
end

-- A server without memory refuses the first write, and only that.
local replica = HELD[state] and (how == 'leave' and o[4] or me) or ''
call('HSET', rec, 'state', state, 'version', ARGV[12], 'owner', ARGV[13], 'replica', replica, 'mark', how == 'leave' and o[5] or mark,
  'receipt', receipt, 'expires', expires, 'data', ARGV[20], 'host', ARGV[27])
if not known then call('HINCRBY', P .. 'tenants', t, 1) end

if known and was ~= state then call('ZREM', P .. 'state:' .. was, name) end
call('ZADD', P .. 'state:' .. state, updated, name)
if HELD[was] and o[4] ~= replica then call('SREM', P .. 'held:' .. o[4], name) end
if replica == me and (o[4] or '') ~= me then
  call('SADD', P .. 'held:' .. me, name)
  if not alive(me, now) then call('ZADD', P .. 'leases', text(now + lease), me) end
end
if was == 'parked' then call('ZREM', P .. 'parked:' .. o[8], name) end
if state == 'parked' then call('ZADD', P .. 'parked:' .. ARGV[27], updated, name) end
if SPENT[state] then
  call('ZADD', P .. 'spent:' .. t, updated, name)
elseif SPENT[was] then
  call('ZREM', P .. 'spent:' .. t, name)
end
for index, score in pairs({due = due, expires = expires, parked = parked}) do
  if score ~= '' then
    call('ZADD', P .. index, score, name)
  elseif known then
    call('ZREM', P .. index, name)
  end
end
if known and o[6] ~= receipt and o[6] ~= '' then call('DEL', P .. 'receipt:' .. o[6]) end
if receipt ~= '' and o[6] ~= receipt then call('SET', P .. 'receipt:' .. receipt, name) end

if ARGV[21] == 'set' then
  call('HSET', rec, 'kept', '1')
  call('HSET', ans, 'fields', ARGV[23], 'body', ARGV[24], 'sealed', ARGV[26])
  resize(name, tonumber(ARGV[22]), updated)
elseif ARGV[21] == 'drop' and known then
  call('HSET', rec, 'kept', '')
  call('DEL', ans)
  resize(name, 0)
end
if ARGV[25] ~= 'keep' and known then call('DEL', req) end
if ARGV[25] == 'set' then call('HSET', req, unpack(ARGV, 28)) end

if keep > 0 then
  for _, key in ipairs({rec, req, ans}) do call('PEXPIREAT', key, text(keep)) end
  if receipt ~= '' then call('PEXPIREAT', P .. 'receipt:' .. receipt, text(keep)) end
elseif (o[7] or '') ~= '' then
  for _, key in ipairs({rec, req, ans}) do call('PERSIST', key) end
  if receipt ~= '' then call('PERSIST', P .. 'receipt:' .. receipt) end
end
shrink(bytes, 64, now)
return {'ok'}
