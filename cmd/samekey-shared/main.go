// Command samekey-shared is the operators' tool for shared stores: what command samekey does for a journal directory, it
// does for PostgreSQL, MariaDB, SQLite and Redis too, by URL, beside living processes. It makes and updates their tables.
// Run it with -h.
//
//	samekey-shared check "postgres://ops@db.test/pay"
//	SAMEKEY_STORE="mysql://ops:secret@db.test/pay" samekey-shared list - -state pending
//
// In a checkout of the repository, go install ./cmd/samekey-shared builds it.
package main

import (
	"context"
	"os"

	"github.com/samekey/samekey/cmd/samekey/tool"
)

func main() {
	os.Exit(tool.Main(context.Background(), os.Args[1:], tool.Config{
		Name:   "samekey-shared",
		Stores: []tool.Kind{postgreSQL.kind(), mariaDB.kind(), sqLite.kind(), redisKind},
	}))
}
