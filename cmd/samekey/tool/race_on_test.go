//go:build race

package tool

const raceOn = true
