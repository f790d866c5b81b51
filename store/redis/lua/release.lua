-- release gives a lease up: what the replica still runs is anybody's.
if call('SCARD', P .. 'held:' .. ARGV[1]) == 0 then return call('ZREM', P .. 'leases', ARGV[1]) end
return call('ZADD', P .. 'leases', 0, ARGV[1])
