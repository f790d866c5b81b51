-- stats counts.
local out = {}
for _, state in ipairs(STATES) do out[#out + 1] = call('ZCARD', P .. 'state:' .. state) end
local count = call('HMGET', P .. 'count', 'bytes', 'early')
out[#out + 1], out[#out + 2] = tonumber(count[1] or 0), tonumber(count[2] or 0)
out[#out + 1] = call('ZRANGE', P .. 'parked', 0, 0, 'WITHSCORES')[2] or ''
return out
