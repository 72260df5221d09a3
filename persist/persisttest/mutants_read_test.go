package persisttest

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/memory"
)

// listed bends what List gives.
func listed(change func(f persist.Filter, all []persist.Record) []persist.Record) func(*bent) {
	return func(b *bent) {
		b.list = func(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
			return func(yield func(persist.Record, error) bool) {
				all, err := collect(ctx, b.Store, persist.Filter{})
				if err != nil {
					yield(persist.Record{}, err)
					return
				}
				for _, r := range change(f, all) {
					if !yield(r, nil) {
						return
					}
				}
			}
		}
	}
}

func matching(f persist.Filter, all []persist.Record) []persist.Record {
	return slices.DeleteFunc(all, func(r persist.Record) bool { return !f.Match(&r) })
}

func mutantsOfReads(add adder) {
	add("Get/missing is an error", "or a zero record", func(b *bent) {
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if errors.Is(err, persist.ErrNotFound) {
				return persist.Record{}, nil
			}
			return r, err
		}
	})
	add("Get/missing is an error", "takes another scope's", func(b *bent) {
		b.get = func(ctx context.Context, ref persist.Ref) (persist.Record, error) {
			r, err := b.Store.Get(ctx, ref)
			if err != nil && ref.Scope == "" {
				return b.Store.Get(ctx, persist.Ref{Scope: scope, ID: ref.ID})
			}
			return r, err
		}
	})
	const order = "List/oldest first, each once"
	add(order, "youngest first", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		slices.Reverse(all)
		return matching(f, all)
	}))
	add(order, "by name", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		slices.SortFunc(all, func(a, b persist.Record) int { return strings.Compare(a.ID, b.ID) })
		return matching(f, all)
	}))
	add(order, "one twice", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		all = matching(f, all)
		return append(all, all[:min(1, len(all))]...)
	}))
	add(order, "without bodies", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		for i := range all {
			all[i].Body = nil
		}
		return matching(f, all)
	}))
	const exact = "List/to the nanosecond, equal instants each once"
	add(exact, "by numbers that round", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		all = matching(f, all)
		slices.SortStableFunc(all, func(a, b persist.Record) int {
			return cmp.Or(cmp.Compare(float64(a.Created.UnixNano()), float64(b.Created.UnixNano())), strings.Compare(b.ID, a.ID))
		})
		return all
	}))
	add(exact, "one for each instant", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		return slices.CompactFunc(matching(f, all), func(a, b persist.Record) bool { return a.Created.Equal(b.Created) })
	}))
	const filters = "List/filters"
	add(filters, "an empty scope is any", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		if f.Scope != nil && *f.Scope == "" {
			f.Scope = nil
		}
		return matching(f, all)
	}))
	add(filters, "scopes by prefix", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		prefix := f.Scope
		f.Scope = nil
		return slices.DeleteFunc(matching(f, all), func(r persist.Record) bool {
			return prefix != nil && *prefix != r.Scope && (*prefix != "a" || !strings.HasPrefix(r.Scope, "a"))
		})
	}))
	add(filters, "Before is at or before", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		if !f.Before.IsZero() {
			f.Before = f.Before.Add(1)
		}
		return matching(f, all)
	}))
	add(filters, "the first state only", listed(func(f persist.Filter, all []persist.Record) []persist.Record {
		f.States = f.States[:min(1, len(f.States))]
		return matching(f, all)
	}))
	// locked keeps a lock while the consumer runs; leaky does not even let it go when the consumer leaves.
	locked := func(leaky bool) func(*bent) {
		return func(b *bent) {
			var mu sync.Mutex
			b.list = func(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
				return func(yield func(persist.Record, error) bool) {
					mu.Lock()
					for r, err := range b.Store.List(ctx, f) {
						if !yield(r, err) {
							if !leaky {
								mu.Unlock()
							}
							return
						}
					}
					mu.Unlock()
				}
			}
			b.begin = func(ctx context.Context, r persist.Record) (persist.Entry, error) {
				mu.Lock()
				defer mu.Unlock()
				return b.Store.Begin(ctx, r)
			}
		}
	}
	add("List/may be left early", "and stays locked", locked(true))
	add("List/lets the consumer call the store", "not while it lists", locked(false))
	add("List/lets the consumer call the store", "loses its place", func(b *bent) {
		b.list = func(ctx context.Context, f persist.Filter) iter.Seq2[persist.Record, error] {
			return func(yield func(persist.Record, error) bool) {
				for i := 0; ; i++ { // by position, which moves when others go
					all, err := collect(ctx, b.Store, f)
					if err != nil || i >= len(all) || !yield(all[i], nil) {
						return
					}
				}
			}
		}
	})
	const odd = "Names/any scope and ID, told apart byte by byte"
	for flaw, change := range map[string]func(string) string{
		"trims":              strings.TrimSpace,
		"ignores case":       strings.ToLower,
		"ends at NUL":        func(s string) string { s, _, _ = strings.Cut(s, "\x00"); return s },
		"valid UTF-8 only":   func(s string) string { return strings.ToValidUTF8(s, "\ufffd") },
		"at most 1000 bytes": func(s string) string { return s[:min(len(s), 1000)] },
		"cleans paths":       func(s string) string { return strings.Trim(s, "./") },
	} {
		add(odd, flaw, begun(func(r *persist.Record) { r.Scope, r.ID = change(r.Scope), change(r.ID) }))
	}
	add(odd, "joins scope and ID", begun(func(r *persist.Record) { r.Scope, r.ID, _ = strings.Cut(r.Scope+"/"+r.ID, "/") }))
}

// mutantsOfPlaces are those that only a restart, or a second store, brings to light.
func mutantsOfPlaces() []mutant {
	strangers := Harness{Shared: true, New: func(testing.TB) func() (persist.Store, error) {
		return func() (persist.Store, error) { return memory.New(), nil }
	}}
	return []mutant{
		{"Durable/each change outlives Close", "loses Mark at restart", onDisk(0, "loses Mark at restart")},
		{"Durable/Close gives claims back", "close keeps claims", onDisk(0, "close keeps claims")},
		{"Durable/Close gives claims back", "close does not flush", onDisk(0, "close does not flush")},
		{"Durable/an error of a broken store is honest", "writes though broken", onDisk(0, "writes though broken")},
		{"Crash/each change outlives it", "the forgotten come back", onDisk(0, "the forgotten come back")},
		{"Crash/each change outlives it", "loses Mark at restart", onDisk(0, "loses Mark at restart")},
		{"Crash/frees claims", "tokens shrink", onDisk(0, "tokens shrink")},
		{"Crash/frees claims", "claims outlive a crash", onDisk(0, "claims outlive a crash")},
		{"Crash/a lazy settle is whole or not there, in order", "lazy settles overtake", onDisk(0, "lazy settles overtake")},
		{"Crash/Flush makes lazy settles durable", "flush does nothing", onDisk(0, "flush does nothing")},
		{"Crash/a durable change takes earlier lazy ones along", "a durable change goes alone", onDisk(0, "a durable change goes alone")},
		{"Crash/a lazy settle is durable soon", "lazy settles stay in memory", onDisk(0, "lazy settles stay in memory")},
		{"Random/does what the model does", "close does not flush", onDisk(0, "close does not flush")},
		{"Shared/Begin is atomic over all stores", "each on its own", strangers},
		{"Shared/a claim has one holder over all stores", "each on its own", strangers},
		{"Shared/ClaimDue gives each operation to one caller", "steals from other stores", onDisk(0, "steals from other stores")},
		{"Shared/changes are seen by all at once", "each on its own", strangers},
		{"Shared/Close ends its own claims only", "ends the others", onDisk(0, "ends the others")},
		{"Shared/a crash ends its own claims only", "ends the others", onDisk(0, "ends the others")},
		{"Leases/a claim lapses and is lost for good", "claims never lapse", onDisk(time.Minute, "claims never lapse")},
		{"Leases/Mark renews", "mark does not renew", onDisk(time.Minute, "mark does not renew")},
	}
}
