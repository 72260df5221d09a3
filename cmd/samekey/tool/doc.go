// Package tool is the operators' tool as a library. Command samekey is [Main] for journal directories; a program that
// names further kinds of store looks after those too, with the same commands, texts and exit codes:
//
//	func main() {
//		os.Exit(tool.Main(context.Background(), os.Args[1:], tool.Config{
//			Name:   "paytool",
//			Stores: []tool.Kind{{Schemes: []string{"etcd"}, Open: openEtcd}},
//		}))
//	}
//
// The program's own -h, and -h behind each command, tell its users everything.
//
// list, show and stats read, and check asks, by [persist.Store]'s Get and List only: they claim nothing, and hold one
// record at a time in memory. abandon, forget, rekey and resume work beside living processes: each changes an operation
// under a claim, and only if it still is what it was when it was looked at.
package tool
