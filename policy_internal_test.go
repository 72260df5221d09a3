package samekey

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/persist/memory"
)

// sample returns two values of a field that differ from each other and from zero.
func sample(t *testing.T, name string, of reflect.Type) (a, b reflect.Value) {
	t.Helper()
	two := func(a, b any) (reflect.Value, reflect.Value) { return reflect.ValueOf(a), reflect.ValueOf(b) }
	switch of {
	case reflect.TypeFor[Switch]():
		return two(On, Off)
	case reflect.TypeFor[*Contract]():
		return two(&Contract{Life: time.Hour}, &Contract{Life: 2 * time.Hour})
	case reflect.TypeFor[KeyFormat]():
		return two(ULID, UUIDv4)
	case reflect.TypeFor[func(Attempt) Decision]():
		return two(func(Attempt) Decision { return Stop }, func(Attempt) Decision { return Retry })
	case reflect.TypeFor[func(context.Context, *ConflictError) (*http.Response, error)]():
		return two(func(context.Context, *ConflictError) (*http.Response, error) { return nil, nil },
			func(context.Context, *ConflictError) (*http.Response, error) { return nil, errNoRequest })
	case reflect.TypeFor[Backoff]():
		return two(Backoff{Min: time.Millisecond, Max: time.Second}, Backoff{Min: 2 * time.Millisecond, Max: 2 * time.Second})
	case reflect.TypeFor[Persist]():
		return two(PersistFull, PersistNone)
	case reflect.TypeFor[Expiry]():
		return two(Surface, NewKey)
	case reflect.TypeFor[[]int]():
		return two([]int{503}, []int{504})
	case reflect.TypeFor[[]string]():
		return two([]string{"/a"}, []string{"/b"})
	}
	a, b = reflect.New(of).Elem(), reflect.New(of).Elem()
	switch {
	case a.CanInt():
		a.SetInt(2)
		b.SetInt(3)
	case a.CanFloat():
		a.SetFloat(0.25)
		b.SetFloat(0.5)
	default:
		t.Fatalf("Policy.%s: no sample for a %v", name, of)
	}
	return a, b
}

func same(t *testing.T, want, got reflect.Value, name string) {
	t.Helper()
	if want.Kind() == reflect.Func {
		require.Equal(t, want.Pointer(), got.Pointer(), name)
		return
	}
	require.Equal(t, want.Interface(), got.Interface(), name)
}

// Each field, by reflection so that a new one is not forgotten: zero takes what the base has, and what is set stays.
func TestEveryPolicyFieldInherits(t *testing.T) {
	for i := range reflect.TypeFor[Policy]().NumField() {
		f := reflect.TypeFor[Policy]().Field(i)
		a, b := sample(t, f.Name, f.Type)
		var base, own Policy
		reflect.ValueOf(&base).Elem().Field(i).Set(a)
		same(t, a, reflect.ValueOf((Policy{}).over(base)).Field(i), f.Name)
		reflect.ValueOf(&own).Elem().Field(i).Set(b)
		same(t, b, reflect.ValueOf(own.over(base)).Field(i), f.Name)
		for j := range reflect.TypeFor[Policy]().NumField() { // and nothing else is touched
			if j != i {
				require.True(t, reflect.ValueOf((Policy{}).over(base)).Field(j).IsZero(), f.Name)
			}
		}
		if f.Type.Kind() == reflect.Slice { // an empty slice is empty
			empty := reflect.MakeSlice(f.Type, 0, 0)
			reflect.ValueOf(&own).Elem().Field(i).Set(empty)
			got := reflect.ValueOf(own.over(base)).Field(i)
			require.False(t, got.IsNil(), f.Name)
			require.Zero(t, got.Len(), f.Name)
		}
	}
	inner := Policy{Backoff: Backoff{Max: time.Minute}}.over(Policy{Backoff: Backoff{Min: time.Second, Max: time.Hour}})
	require.Equal(t, Backoff{Min: time.Second, Max: time.Minute}, inner.Backoff, "one by one")
}

// A client with no policy at all has each field's documented default.
func TestEveryPolicyFieldHasItsDefault(t *testing.T) {
	store := memory.New()
	t.Cleanup(func() { _ = store.Close() })
	c, err := New(Config{Store: store, Endpoints: map[string]Policy{"/": {}}})
	require.NoError(t, err)
	for _, pl := range []*plan{c.none, c.plans["/"]} {
		got := pl.Policy
		require.Nil(t, got.Decide)
		require.True(t, pl.isCommand("POST") && pl.isCommand("PATCH") && !pl.isCommand("PUT") && !pl.isCommand("DELETE") && !pl.isCommand("GET"))
		require.Nil(t, pl.budget)
		require.Equal(t, Policy{
			RequireName: Off, Contract: &DefaultContract, KeyFormat: UUIDv4, MaxAttempts: 4, AttemptTimeout: 10 * time.Second,
			Deadline: time.Minute, Backoff: Backoff{200 * time.Millisecond, 10 * time.Second}, MaxRetryAfter: time.Minute,
			RetryStatus: []int{408, Any5xx}, RetryTransport: On, Await: Off, Redirects: Off, MaxBody: 1 << 20, MaxResponse: 1 << 20,
			Persist: PersistFull, OnExpiry: Surface, Retention: 24 * time.Hour, KeepRejections: On,
		}, got)
	}
	never := &Contract{Life: Forever}
	week, err := New(Config{Store: store, Default: Policy{Contract: never}})
	require.NoError(t, err)
	require.Equal(t, 7*24*time.Hour, week.none.Retention)
}
