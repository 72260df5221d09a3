package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/samekey/samekey/persist/journal"
)

// lockFile is there in every journal that was ever opened.
const lockFile = "lock"

// lookJournal reads the journal in dir, beside a living owner too. What is damaged is said on stderr.
func (t *tool) lookJournal(dir string) (*journal.View, error) {
	if isOther(dir) {
		return nil, notJournal(dir)
	}
	v, err := journal.ReadOnly(dir)
	if err != nil {
		return nil, bad("%w", err)
	}
	if n := len(v.Report().Damage); n > 0 {
		t.warn("%s is damaged in %s, this is what is left: %s check tells more", dir, count(n, "place", "places"), t.Name)
	}
	return v, nil
}

func notJournal(dir string) error { return bad("there is no journal in %s", dir) }

// isJournal keeps the tool from taking, or making, an empty directory for a journal without operations.
func isJournal(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && holdsJournal(entries)
}

// isOther reports whether dir can be read, and holds no journal: what package journal would mend of it is not to be mended.
func isOther(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && !holdsJournal(entries)
}

func holdsJournal(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == lockFile || strings.HasSuffix(e.Name(), ".seg")
	})
}

// openJournal opens the journal in dir for writing. It makes none, and is refused while another process has it.
func (t *tool) openJournal(ctx context.Context, dir string) (*journal.Journal, error) {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return nil, bad("%w", err)
	case !isJournal(dir):
		return nil, notJournal(dir)
	}
	if err := t.foreign(dir, st); err != nil {
		return nil, err
	}
	j, err := journal.Open(ctx, dir, journal.Options{
		AllowNetworkFS: true, // whoever made it there has allowed it
		Logger:         slog.New(slog.DiscardHandler),
		OnReport: func(r journal.Report) {
			for _, d := range damages(dir, r.Damage) {
				t.warn("%s is damaged: %s", dir, d)
			}
			for _, d := range damages(dir, r.Cut) {
				t.warn("%s had a torn tail: %s", dir, d)
			}
		},
	})
	var inUse *journal.InUseError
	if errors.As(err, &inUse) {
		who := "a living process"
		if p, ok := holder(dir); ok {
			who = p.String()
		}
		return nil, &exit{exitInUse, fmt.Errorf("%s is in use by %s: stop it first, or have it make the change itself", absolute(dir), who)}
	}
	if err != nil {
		return nil, bad("%w", err)
	}
	return j, nil
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}
