-- held reads what a replica runs.
local out = {}
for _, name in ipairs(call('SMEMBERS', P .. 'held:' .. ARGV[1])) do out[#out + 1] = current(name) end
return out
