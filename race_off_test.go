//go:build !race

package samekey_test

const raceOn = false
