-- List, first step: members of the indexes after one place and before another: after, before, n, which.
local open, over = {}, {}
if ARGV[4] ~= 'over' then open = call('ZRANGEBYLEX', OPEN, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3]) end
if ARGV[4] ~= 'open' then over = call('ZRANGEBYLEX', OVER, ARGV[1], ARGV[2], 'LIMIT', 0, ARGV[3]) end
return {open, over}
