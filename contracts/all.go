package contracts

import (
	"strings"
	"time"

	"github.com/samekey/samekey"
)

const day = 24 * time.Hour

// uuid is the text form of a UUID, uuid4 that of version 4, which leaves out the zero UUID.
const (
	uuid  = `[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`
	uuid4 = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-4[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}`
)

// All is every contract of the package, each with a name of its own, for [samekey.LoadPolicies].
func All() []samekey.Contract {
	return []samekey.Contract{
		StripeV1, StripeV2,
		PayPalOrdersV2, PayPalPaymentsV2, PayPalPaymentsV1, PayPalPayouts, PayPalSubscriptions, PayPalCatalog, PayPalVaultV3,
		PayPalWebProfiles, PayPalOrdersV1,
		Adyen, Square, YooKassa, TBankCancel, TBankInit, Mollie, CheckoutCom, GoCardless,
		WiseTransfers, WiseUUID, WiseProfiles,
		PlaidAuthorizations, PlaidTransfers, PlaidBankTransfers, PlaidConsents, PlaidWallets,
		ModernTreasury, Increase, Dwolla, RevolutTransactions, RevolutCards, RevolutPayoutLinks,
		AWSEC2, AWSEC2Query, AWS("clientToken"), AWS("clientRequestToken"), GoogleCloud, AzureRepeatability,
		IETF, Zalando,
	}
}

// at makes endpoints of "METHOD /path" patterns.
func at(base string, endpoints map[string]samekey.Contract) map[string]samekey.Policy {
	out := make(map[string]samekey.Policy, len(endpoints))
	for pattern, c := range endpoints {
		method, path, _ := strings.Cut(pattern, " ")
		out[method+" "+strings.TrimSuffix(base, "/")+path] = samekey.Policy{Contract: &c}
	}
	return out
}

// is is a condition on a member of a JSON body.
func is(pointer string, values ...string) samekey.Match {
	return samekey.Match{Pointer: pointer, Values: values}
}

// status is a condition on an answer's status alone.
func status(codes ...int) samekey.Match { return samekey.Match{Status: codes} }
