-- tokens takes a token from every bucket, or none and says how long until then and
-- which bucket is the last. A bucket refills at its rate, or at its share of the
-- fresh calls of all replicas that retried lately, where that is more. A token may
-- be taken 50 ms early: dates are those of the replicas, and asking takes time.
local me, now, wait, lacking, left = ARGV[1], clock(), 0, 0, {}
local lately = 60 * 1000000
for i = 2, #ARGV, 5 do
  local key, rate, burst, share = P .. 'tokens:' .. ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  call('HSET', key, 'fresh:' .. me, ARGV[i + 4], 'seen:' .. me, text(now))
  local b, all, fresh = {}, call('HGETALL', key), 0
  for j = 1, #all, 2 do b[all[j]] = all[j + 1] end
  for name, seen in pairs(b) do
    local replica = string.match(name, '^seen:(.*)')
    if replica and tonumber(seen) + lately < now then
      call('HDEL', key, name, 'fresh:' .. replica)
    elseif replica then
      fresh = fresh + tonumber(b['fresh:' .. replica])
    end
  end
  rate = math.max(rate, share * fresh)
  local n = burst
  if b.tokens then n = math.min(burst, tonumber(b.tokens) + math.max(now - tonumber(b.at), 0) * rate / 1000000) end
  left[#left + 1] = {key, n - 1}
  if n < 1 - 1e-6 - 0.05 * rate then
    local need = rate > 0 and (1 - n) / rate * 1000000 or 1e15
    if need > wait then wait, lacking = need, (i + 3) / 5 end
  end
  call('PEXPIRE', key, text(60000 + math.min(rate > 0 and burst / rate * 1000 or 0, 86400000)))
end
if lacking > 0 then return {0, text(math.ceil(wait)), lacking} end
for _, b in ipairs(left) do call('HSET', b[1], 'tokens', string.format('%.9f', b[2]), 'at', text(now)) end
return {1, '0', 0}
