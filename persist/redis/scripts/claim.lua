-- Claim.
local o = load(OP, hash)
if not o or bare(o) then return {'none'} end
if o.held > now and o.owner ~= turn then return {'busy'} end
take(o, turn)
return show('taken', o)
