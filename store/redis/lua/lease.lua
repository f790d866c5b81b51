-- lease keeps a replica alive for a while. It says what time it is, how many
-- replicas are alive, and since when these records are kept.
local now = clock()
call('ZADD', P .. 'leases', 'GT', text(now + tonumber(ARGV[2])), ARGV[1])
call('HSETNX', P .. 'count', 'since', text(now))
return {text(now), call('ZCOUNT', P .. 'leases', '(' .. text(now), '+inf'), call('HGET', P .. 'count', 'since')}
