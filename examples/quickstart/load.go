package main

import (
	"fmt"
	"sync"
)

// load is what is to be done: so many orders, charged at a server. Run tells the orders of one run from those of another
// at the same server.
type load struct {
	Server string
	Run    string
	Orders int
}

// workers is how many orders are charged at a time.
const workers = 6

// order is one intent. Its name is what the program calls it by, in every run of the program alike.
type order struct{ name, body string }

func (l load) order(i int) order {
	name := fmt.Sprintf("order-%d", i)
	return order{name, fmt.Sprintf(`{"amount":%d,"currency":"EUR","orderRef":"%s/%s"}`, 1000+i, l.Run, name)}
}

// each calls charge for every order, several at a time.
func (l load) each(charge func(order)) {
	next := make(chan order)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for o := range next {
				charge(o)
			}
		})
	}
	for i := range l.Orders {
		next <- l.order(i + 1)
	}
	close(next)
	wg.Wait()
}
