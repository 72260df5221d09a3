package contracts_test

import (
	"cmp"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey"
	"github.com/samekey/samekey/contracts"
	"github.com/samekey/samekey/persist/memory"
)

func (a api) file() string { return cmp.Or(a.answers, a.contract.Name) }

// Every documented answer means what the documentation says it does.
func TestDocumentedAnswers(t *testing.T) {
	for _, a := range apis() {
		t.Run(a.contract.Name, func(t *testing.T) {
			t.Parallel()
			all := readAnswers(t, a.file())
			for _, r := range a.rows {
				if err := a.check(t, all, r, a.contract); err != nil {
					t.Errorf("%s: %v", r.name, err)
				}
			}
			require.NoError(t, a.fits(t, a.contract))
		})
	}
}

// Every contract is in the table, has a name of its own, and can be named in a policy file.
func TestAll(t *testing.T) {
	inTable := map[string]samekey.Contract{}
	for _, a := range apis() {
		inTable[a.contract.Name] = a.contract
	}
	delete(inTable, samekey.DefaultContract.Name)
	all := contracts.All()
	require.Len(t, all, len(inTable))
	for _, c := range all {
		require.Equal(t, inTable[c.Name], c)
		delete(inTable, c.Name)
		file := fstest.MapFS{"p.json": {Data: []byte(`{"Endpoints": {"POST api.test/": {"Contract": "` + c.Name + `"}}}`)}}
		def, endpoints, err := samekey.LoadPolicies(file, "p.json", all...)
		require.NoError(t, err)
		require.Equal(t, c, *endpoints["POST api.test/"].Contract)
		store := memory.New()
		client, err := samekey.New(samekey.Config{Store: store, Default: def, Endpoints: endpoints})
		require.NoError(t, err)
		require.NoError(t, client.Close())
		require.NoError(t, store.Close())
	}
	require.Empty(t, inTable)
}
