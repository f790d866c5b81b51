-- goes counts the parked records by when they are due: before each of the times, which
-- are in order, and later.
local counts, n = {}, #ARGV
for i = 1, n + 1 do counts[i] = 0 end
local found = call('ZINTER', 2, P .. 'due', P .. 'parked', 'WEIGHTS', 1, 0, 'WITHSCORES') -- by date
local edge = 1
for i = 2, #found, 2 do
  local at = tonumber(found[i])
  while edge <= n and at >= tonumber(ARGV[edge]) do edge = edge + 1 end
  counts[edge] = counts[edge] + 1
end
return counts
