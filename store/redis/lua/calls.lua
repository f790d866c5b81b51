-- calls reads the history, the newest first, from a place on.
local from, after, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])
local out, offset = {}, 0
while #out < limit do
  local some = call('ZREVRANGEBYSCORE', P .. 'calls', from, '-inf', 'WITHSCORES', 'LIMIT', offset, limit)
  if #some == 0 then break end
  for i = 1, #some, 2 do
    if #out < limit and (some[i + 1] ~= from or after == '' or some[i] < after) then
      out[#out + 1] = {some[i + 1], some[i], call('HGET', P .. 'calls:data', some[i])}
    end
  end
  offset = offset + limit
end
return out
