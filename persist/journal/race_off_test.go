//go:build !race

package journal

const raceBuild = false
