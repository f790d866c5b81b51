-- get reads records by name.
local out = {}
for _, name in ipairs(ARGV) do out[#out + 1] = current(name) end
return out
