package retryafter

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	const most = time.Duration(math.MaxInt64)
	for _, c := range []struct {
		in   string
		want time.Duration
		ok   bool
	}{
		{"0", 0, true},
		{"1", time.Second, true},
		{"120", 2 * time.Minute, true},
		{" \t120 ", 2 * time.Minute, true},
		{"0005", 5 * time.Second, true},
		{strings.Repeat("0", 40) + "5", 5 * time.Second, true},
		{"9223372036", 9223372036 * time.Second, true},
		{"9223372037", most, true},
		{"18446744073", most, true},
		{"18446744074", most, true},
		{"9223372036854775807", most, true},
		{"9223372036854775808", most, true},
		{"18446744073709551616", most, true},
		{"12345678901234567890", most, true},
		{"99999999999999999999", most, true},
		{strings.Repeat("9", 10_000), most, true},
		{"-1", 0, true},
		{"-0", 0, true},
		{"-99999999999999999999", 0, true},

		{"", 0, false},
		{"  ", 0, false},
		{"-", 0, false},
		{"--1", 0, false},
		{"+1", 0, false},
		{"-1.5", 0, false},
		{"1.5", 0, false},
		{"1.", 0, false},
		{"1e30", 0, false},
		{"1e3", 0, false},
		{"0x10", 0, false},
		{"1_000", 0, false},
		{"1 2", 0, false},
		{"5, 10", 0, false},
		{"5s", 0, false},
		{"soon", 0, false},
		{"Infinity", 0, false},
		{"NaN", 0, false},
		{"\u0661", 0, false},
		{strings.Repeat("9", 40) + "x", 0, false},

		{"Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second, true},
		{"Sunday, 01-Mar-26 12:00:30 GMT", 30 * time.Second, true},
		{"Sun Mar  1 12:00:30 2026", 30 * time.Second, true},
		{"Tue Mar 10 12:00:00 2026", 9 * 24 * time.Hour, true},
		{"Sun, 01 Mar 2026 12:00:00 GMT", 0, true},
		{"Sun, 01 Mar 2026 11:59:00 GMT", 0, true},
		{"Sunday, 06-Nov-94 08:49:37 GMT", 0, true},
		{"Sun Nov  6 08:49:37 1994", 0, true},
		{"Mon, 01 Jan 0001 00:00:00 GMT", 0, true},
		{"Fri, 31 Dec 9999 23:59:59 GMT", most, true},

		{"Sun, 01 Mar 2026 12:00:30 CET", 0, false},
		{"Sun, 01 Mar 2026 12:00:30 +0100", 0, false},
		{"Sun, 01 Mar 2026 12:00:30", 0, false},
		{"Sunday, 01-Mar-26 12:00:30 PST", 0, false},
		{"Sunday, 01-Mar-2026 12:00:30 GMT", 0, false},
		{"Sun, 31 Feb 2026 12:00:30 GMT", 0, false},
		{"Sun, 01 Mar 2026 25:00:30 GMT", 0, false},
		{"2026-03-01T12:00:30Z", 0, false},
		{"1772366430000000000000000 GMT", 0, false},
	} {
		d, ok := Parse(http.Header{"Retry-After": {c.in}}, now)
		assert.Equal(t, c.ok, ok, "%.60q", c.in)
		assert.Equal(t, c.want, d, "%.60q", c.in)
	}
	d, ok := Parse(http.Header{}, now)
	assert.False(t, ok)
	assert.Zero(t, d)
	_, ok = Parse(nil, now)
	assert.False(t, ok)
}

func TestFirstValidLineCounts(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want time.Duration
		ok   bool
	}{
		{[]string{"5", "10"}, 5 * time.Second, true},
		{[]string{"10", "5"}, 10 * time.Second, true},
		{[]string{"soon", "5"}, 5 * time.Second, true},
		{[]string{"", "Sun, 01 Mar 2026 12:00:30 GMT", "5"}, 30 * time.Second, true},
		{[]string{"-1", "5"}, 0, true},
		{[]string{"soon", "1.5"}, 0, false},
	} {
		d, ok := Parse(http.Header{"Retry-After": c.in}, now)
		assert.Equal(t, c.ok, ok, "%q", c.in)
		assert.Equal(t, c.want, d, "%q", c.in)
	}
}

func TestDateHeader(t *testing.T) {
	const at = "Sun, 01 Mar 2026 12:00:30 GMT"
	for _, c := range []struct {
		date []string
		want time.Duration
	}{
		{nil, 30 * time.Second},
		{[]string{}, 30 * time.Second},
		{[]string{"Sun, 01 Mar 2026 12:00:20 GMT"}, 10 * time.Second},
		{[]string{"Sun, 01 Mar 2026 11:50:30 GMT"}, 10 * time.Minute},
		{[]string{"Sunday, 01-Mar-26 11:50:30 GMT"}, 10 * time.Minute},
		{[]string{"Sun Mar  1 11:50:30 2026"}, 10 * time.Minute},
		{[]string{"Sun, 01 Mar 2026 14:00:00 GMT"}, 0},
		{[]string{"Sat, 28 Feb 2026 12:00:00 GMT"}, 24*time.Hour + 30*time.Second},
		{[]string{"Sat, 28 Feb 2026 11:59:59 GMT"}, 30 * time.Second}, // not sane
		{[]string{"Mon, 02 Mar 2026 12:00:01 GMT"}, 30 * time.Second},
		{[]string{"Thu, 01 Jan 1970 00:00:00 GMT"}, 30 * time.Second},
		{[]string{"Fri, 31 Dec 9999 23:59:59 GMT"}, 30 * time.Second},
		{[]string{"Mon, 01 Jan 0001 00:00:00 GMT"}, 30 * time.Second},
		{[]string{"today"}, 30 * time.Second},
		{[]string{"5"}, 30 * time.Second},
	} {
		d, ok := Parse(http.Header{"Retry-After": {at}, "Date": c.date}, now)
		assert.True(t, ok)
		assert.Equal(t, c.want, d, "%q", c.date)
	}
	// Seconds do not depend on it.
	d, ok := Parse(http.Header{"Retry-After": {"7"}, "Date": {"Sun, 01 Mar 2026 11:50:30 GMT"}}, now)
	assert.True(t, ok)
	assert.Equal(t, 7*time.Second, d)
	// Nor on now's zone or monotonic reading.
	d, ok = Parse(http.Header{"Retry-After": {at}}, now.In(time.FixedZone("x", 3600)))
	assert.True(t, ok)
	assert.Equal(t, 30*time.Second, d)
	n := time.Now()
	d, ok = Parse(http.Header{"Retry-After": {n.UTC().Add(time.Minute).Format(http.TimeFormat)}}, n)
	assert.True(t, ok)
	assert.InDelta(t, time.Minute, d, float64(time.Second))
}

func TestTwoDigitYears(t *testing.T) {
	for _, c := range []struct {
		now, in string
		year    int
	}{
		{"2026-03-01", "01-Mar-27", 2027},
		{"2026-03-01", "01-Mar-68", 2068},
		{"2026-03-01", "01-Mar-69", 2069}, // package time says 1969
		{"2026-03-01", "01-Mar-76", 2076}, // 50 years to the second is not more than 50
		{"2026-03-01", "02-Mar-76", 1976},
		{"2026-03-01", "01-Mar-77", 1977},
		{"2026-03-01", "01-Mar-94", 1994},
		{"2026-03-01", "01-Mar-00", 2000},
		{"2099-12-31", "01-Jan-00", 2100},
		{"2099-12-31", "01-Jan-49", 2149},
		{"2099-12-31", "01-Jan-50", 2050},
		{"1994-11-06", "06-Nov-94", 1994},
		{"1994-11-06", "07-Nov-44", 1944},
		{"1994-11-06", "01-Nov-44", 2044},
		{"2190-01-01", "05-May-70", 2170},
	} {
		n, err := time.Parse(time.DateOnly, c.now)
		assert.NoError(t, err)
		got, ok := date("Sunday, "+c.in+" 00:00:00 GMT", n)
		assert.True(t, ok)
		assert.Equal(t, c.year, got.Year(), "%s at %s", c.in, c.now)
	}
}

func TestAllocations(t *testing.T) {
	for _, h := range []http.Header{
		{},
		{"Retry-After": {"120"}},
		{"Retry-After": {"soon"}},
		{"Retry-After": {"1.5"}},
		{"Retry-After": {"Sun, 01 Mar 2026 12:00:30 GMT"}, "Date": {"Sun, 01 Mar 2026 12:00:20 GMT"}},
		{"Retry-After": {"Sunday, 01-Mar-26 12:00:30 GMT"}},
		{"Retry-After": {"Sun Mar  1 12:00:30 2026"}},
	} {
		assert.Zero(t, testing.AllocsPerRun(100, func() { Parse(h, now) }), "%v", h)
	}
}

func FuzzParse(f *testing.F) {
	for _, v := range []string{"", "5", "-1", "99999999999999999999", "soon", "Sun, 01 Mar 2026 12:00:30 GMT", "Sunday, 29-Feb-00 12:00:30 GMT", "Sun Mar  1 12:00:30 2026"} {
		f.Add(v, "Sun, 01 Mar 2026 12:00:20 GMT", int64(1772366400))
	}
	f.Fuzz(func(t *testing.T, v, date string, unix int64) {
		d, ok := Parse(http.Header{"Retry-After": {v}, "Date": {date}}, time.Unix(unix%(1<<40), 0))
		if d < 0 || !ok && d != 0 {
			t.Fatal(d, ok)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for _, v := range []string{"120", "Sun, 01 Mar 2026 12:00:30 GMT"} {
		h := http.Header{"Retry-After": {v}, "Date": {"Sun, 01 Mar 2026 12:00:20 GMT"}}
		b.Run(v, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Parse(h, now)
			}
		})
	}
}
