//go:build race

package journal

const raceBuild = true
