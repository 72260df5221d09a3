//go:build !race

package tool

const raceOn = false
