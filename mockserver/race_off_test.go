//go:build !race

package mockserver_test

const raceOn = false
