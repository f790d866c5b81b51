-- page reads records of an index by their last change, the latest first, from a
-- place on.
local set, from, after, limit = P .. ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local out, offset = {}, 0
while #out < limit do
  local some = call('ZREVRANGEBYSCORE', set, from, '-inf', 'WITHSCORES', 'LIMIT', offset, limit)
  if #some == 0 then break end
  for i = 1, #some, 2 do
    if #out < limit and (some[i + 1] ~= from or after == '' or some[i] < after) then
      local r = current(some[i])
      if r then
        r[6], r[9], r[10] = '', some[i + 1], ''
        out[#out + 1] = r
      end
    end
  end
  offset = offset + limit
end
return out
