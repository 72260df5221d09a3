package memory

import "github.com/samekey/samekey/persist"

// Sizes tells how many operations s indexes and how many its order holds.
func Sizes(s persist.Store) (ops, order int) {
	m := s.(*store)
	return len(m.ops), len(m.order)
}
