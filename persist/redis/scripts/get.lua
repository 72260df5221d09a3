-- Get.
local o = load(OP, ARGV[4])
if not o or gone(o) then return {'none'} end
return show('known', o)
