-- due reads what is due at a time, the first that is due later, and what replicas
-- run that are gone: those that said so, and with lapsed those without a lease.
local me, at, limit, lapsed = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local due, later = {}, {}
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'due', '-inf', at, 'LIMIT', 0, limit)) do due[#due + 1] = current(name) end
for _, name in ipairs(call('ZRANGEBYSCORE', P .. 'due', '(' .. at, '+inf', 'LIMIT', 0, 1)) do later[1] = current(name) end
for _, replica in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', lapsed and text(clock()) or 0)) do
  if replica ~= me and #due < 2 * limit then
    for _, name in ipairs(call('SRANDMEMBER', P .. 'held:' .. replica, limit)) do due[#due + 1] = current(name) end
  end
end
return {due, later}
