// Command samekey is the operators' tool for a journal directory: it verifies one, lists and shows what is in it, and
// abandons, forgets, rekeys and resumes operations. It also checks policy files. Run it with -h.
//
// It knows journals only, and imports no database driver. Command samekey-shared, a module of its own, is the same tool
// for PostgreSQL, MariaDB, SQLite and Redis too; package tool makes one for a store of your own.
package main

import (
	"context"
	"os"

	"github.com/samekey/samekey/cmd/samekey/tool"
)

func main() { os.Exit(tool.Main(context.Background(), os.Args[1:], tool.Config{})) }
