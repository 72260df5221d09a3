module github.com/samekey/samekey/persist/redis

go 1.26.0

replace github.com/samekey/samekey => ../..
