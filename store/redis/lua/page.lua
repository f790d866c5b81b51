-- page reads records of an index by their last change, the latest first or last, from
-- a place on.
local set, from, after, limit, oldest = P .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local out, offset = {}, 0
while #out < limit do
  local some
  if oldest then
    some = call('ZRANGEBYSCORE', set, from, '+inf', 'WITHSCORES', 'LIMIT', offset, limit)
  else
    some = call('ZREVRANGEBYSCORE', set, from, '-inf', 'WITHSCORES', 'LIMIT', offset, limit)
  end
  if #some == 0 then break end
  for i = 1, #some, 2 do
    local name = some[i]
    local beyond = some[i + 1] ~= from or after == '' or oldest and name > after or not oldest and name < after
    local r = #out < limit and beyond and current(name)
    if r then
      r[9] = some[i + 1]
      out[#out + 1] = r
    end
  end
  offset = offset + limit
end
return out
