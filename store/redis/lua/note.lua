-- note adds calls that ended to the history, once, and says whether it did.
local mark, most = ARGV[1], tonumber(ARGV[2])
if call('GET', P .. 'noted:' .. mark) then return 0 end
local first = call('HINCRBY', P .. 'count', 'calls', (#ARGV - 2) / 2) - (#ARGV - 2) / 2
for i = 3, #ARGV, 2 do
  first = first + 1
  local id = string.format('%016.0f', first)
  call('HSET', P .. 'calls:data', id, ARGV[i + 1])
  call('ZADD', P .. 'calls', ARGV[i], id)
end
call('SET', P .. 'noted:' .. mark, 1, 'EX', 60)
forget(most, '-inf', 512)
return 1
