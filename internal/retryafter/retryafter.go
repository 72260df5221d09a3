// Package retryafter reads the Retry-After header field.
package retryafter

import (
	"math"
	"net/http"
	"strings"
	"time"
)

// A server's clock may be wrong by minutes, or by its time zone. A Date farther off is no clock: a frozen recording, a
// cache, a board without battery.
const maxSkew = 24 * time.Hour

const (
	imfFixdate = http.TimeFormat
	rfc850     = "Monday, 02-Jan-06 15:04:05 GMT" // not time.RFC850, whose zone may be any local abbreviation
	asctime    = time.ANSIC
)

// Parse returns how long the server asks to wait, never negative. ok is false if h has no valid Retry-After; the caller's
// normal backoff, which is also the least wait for ok, applies then.
//
//   - Seconds are digits only. What does not fit is the largest Duration. Leading zeros are fine; a sign, a decimal point, an
//     exponent or a list are not.
//   - A negative integer is 0: it asks for no wait, as a past date does.
//   - A date has one of the three forms of RFC 9110 (IMF-fixdate, RFC 850, asctime), in GMT. The wait is counted from the
//     response's own Date, so that a skewed clock of the server cancels out, or from now if there is no valid Date or it is
//     more than a day away from now. Two digits of a year mean the latest such year that is not more than 50 years ahead.
//   - White space around the value does not matter.
//   - Of several lines the first valid one counts.
func Parse(h http.Header, now time.Time) (d time.Duration, ok bool) {
	for _, v := range h["Retry-After"] {
		v = strings.Trim(v, " \t")
		if d, ok := seconds(v); ok {
			return d, true
		}
		if t, ok := date(v, now); ok {
			return max(t.Sub(origin(h, now)), 0), true // Sub saturates
		}
	}
	return 0, false
}

func seconds(v string) (time.Duration, bool) {
	digits := strings.TrimPrefix(v, "-")
	if digits == "" {
		return 0, false
	}
	const most = uint64(math.MaxInt64 / time.Second)
	var n uint64
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n <= most { // beyond, only the form of the rest matters
			n = n*10 + uint64(c-'0')
		}
	}
	switch {
	case len(digits) != len(v):
		return 0, true
	case n > most:
		return math.MaxInt64, true
	}
	return time.Duration(n) * time.Second, true
}

func origin(h http.Header, now time.Time) time.Time {
	if vs := h["Date"]; len(vs) > 0 {
		if t, ok := date(strings.Trim(vs[0], " \t"), now); ok && t.Sub(now).Abs() <= maxSkew {
			return t
		}
	}
	return now
}

// date picks the layout by the value's shape, as a failed time.Parse allocates its error.
func date(v string, now time.Time) (time.Time, bool) {
	layout := rfc850
	switch {
	case len(v) < len(asctime): // the shortest
		return time.Time{}, false
	case v[3] == ',':
		layout = imfFixdate
	case v[3] == ' ':
		layout = asctime
	case !strings.HasSuffix(v, " GMT"):
		return time.Time{}, false
	}
	t, err := time.Parse(layout, v)
	if err != nil {
		return time.Time{}, false
	}
	if layout == rfc850 {
		t = century(t, now)
	}
	return t, true
}

// century replaces package time's fixed pivot (1969 to 2068) by that of RFC 9110, 5.6.7: a date that appears to be more than
// 50 years in the future is of the most recent year in the past with the same last two digits.
func century(t, now time.Time) time.Time {
	limit := now.UTC().AddDate(50, 0, 0)
	for year := limit.Year() - limit.Year()%100 + t.Year()%100; ; year -= 100 {
		c := time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
		if !c.After(limit) {
			return c
		}
	}
}
