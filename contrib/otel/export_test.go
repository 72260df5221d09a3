package otelsamekey

// Open is how many operations o holds state of.
func (o *Observer) Open() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, ops := range o.ops {
		n += len(ops)
	}
	return n
}
