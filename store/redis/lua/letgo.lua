-- letgo leaves a record that nobody runs after all to whoever adopts it, if it is as
-- the change with the mark left it.
local name, mark = ARGV[1], ARGV[2]
local o = call('HMGET', P .. 'rec:' .. name, 'state', 'replica', 'mark')
if not HELD[o[1]] or o[3] ~= mark then return 0 end
call('SREM', P .. 'held:' .. o[2], name)
call('SADD', P .. 'held:nobody', name)
call('ZADD', P .. 'leases', 0, 'nobody')
call('HSET', P .. 'rec:' .. name, 'replica', 'nobody', 'mark', '')
return 1
