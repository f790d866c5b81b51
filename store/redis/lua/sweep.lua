-- sweep removes some of what is over or too much, and says how much of it expired.
local limit, entries, bytes, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), clock()
local calls, keep = tonumber(ARGV[4]), tonumber(ARGV[5])
local n = reclaim(limit, now)
if entries > 0 then fit(entries, limit, now) end
shrink(bytes, limit, now)
forget(calls, text(now - keep), limit)
for _, replica in ipairs(call('ZRANGEBYSCORE', P .. 'leases', '-inf', text(now - 60000000))) do
  if call('SCARD', P .. 'held:' .. replica) == 0 then call('ZREM', P .. 'leases', replica) end
end
return n
