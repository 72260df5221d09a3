module github.com/samekey/samekey/examples/outbox

go 1.26.0

replace github.com/samekey/samekey => ../..
replace github.com/samekey/samekey/persist/sqlstore => ../../persist/sqlstore
