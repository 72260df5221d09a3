module github.com/samekey/samekey/cmd/samekey-shared

go 1.26.0

replace github.com/samekey/samekey => ../..
replace github.com/samekey/samekey/persist/sqlstore => ../../persist/sqlstore
replace github.com/samekey/samekey/persist/redis => ../../persist/redis
