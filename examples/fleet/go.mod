module github.com/samekey/samekey/examples/fleet

go 1.26.0

replace github.com/samekey/samekey => ../..
replace github.com/samekey/samekey/persist/sqlstore => ../../persist/sqlstore
