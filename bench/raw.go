package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync"
)

// rawLog is the limit: the least that a durable begin can cost. One write and one flush of prewritten space for all that
// wait; no checksum, no index, and nothing is ever found again but by reading all of it.
type rawLog struct {
	f         *os.File
	off, size int64

	mu         sync.Mutex
	buf, spare []byte
	next       *group // of buf
	kick       chan struct{}
	stopped    chan struct{}
}

// rawSize is when it starts again at the front.
var rawSize = int64(64 << 20)

func openRaw(dir string, _ int) (store, error) { return newRaw(dir, rawSize) }

// newRaw prewrites a file if there is none.
func newRaw(dir string, size int64) (*rawLog, error) {
	f, err := os.OpenFile(filepath.Join(dir, "raw"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	r := &rawLog{f: f, size: size, next: newGroup(), kick: make(chan struct{}, 1), stopped: make(chan struct{})}
	st, err := f.Stat()
	if err == nil && st.Size() == 0 {
		zeros := make([]byte, 1<<20)
		for off := int64(0); off < size && err == nil; off += int64(len(zeros)) {
			_, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-off)], off)
		}
		if err == nil {
			err = f.Sync()
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	go r.run()
	return r, nil
}

func (r *rawLog) run() {
	defer close(r.stopped)
	for range r.kick {
		runtime.Gosched() // whoever is about to append gets on this flush instead of the next
		r.mu.Lock()
		buf, g := r.buf, r.next
		r.buf, r.next = r.spare[:0], newGroup()
		r.mu.Unlock()
		r.spare = buf
		if len(buf) > 0 {
			g.err = r.write(buf)
		}
		close(g.done)
	}
}

func (r *rawLog) write(buf []byte) error {
	if r.off+int64(len(buf)) > r.size {
		r.off = 0
	}
	if _, err := r.f.WriteAt(buf, r.off); err != nil {
		return err
	}
	r.off += int64(len(buf))
	return fdatasync(r.f)
}

func (r *rawLog) begin(id string) (uint64, error) {
	r.mu.Lock()
	r.buf = append(append(r.buf, id...), record[len(id):]...)
	g := r.next
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	<-g.done
	return 0, g.err
}

func (r *rawLog) settle(string, uint64) error { return nil }

func (r *rawLog) has(id string) (bool, error) {
	b, err := os.ReadFile(r.f.Name())
	return bytes.Contains(b, []byte(id)), err
}

func (r *rawLog) close() error {
	close(r.kick)
	<-r.stopped
	return r.f.Close()
}
