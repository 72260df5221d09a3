package contracts

import (
	"time"

	"github.com/samekey/samekey"
)

// EC2's query API: ClientToken, of at most 64 ASCII characters, in the form of a POST ([AWSEC2]) or in the query
// ([AWSEC2Query]). A repeat succeeds without an effect, and may tell the present state; another payload is
// IdempotentParameterMismatch. The token is known per Region or Availability Zone.
//
// The life is the service's own: RunInstances' reaches at least 24 h past the end of the instance (2013), others are not
// documented, so that none is given here.
//
// Sources: https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html,
// http://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Run_Instance_Idempotency.html (2013).
var (
	AWSEC2      = ec2("aws-ec2", samekey.FormField("ClientToken"))
	AWSEC2Query = ec2("aws-ec2-query", samekey.QueryParam("ClientToken"))
)

func ec2(name string, carrier samekey.Carrier) samekey.Contract {
	return samekey.Contract{Name: name, Carrier: carrier, MaxLength: 64, Rules: []samekey.Rule{
		{If: samekey.Match{Contains: "<Code>IdempotentParameterMismatch</Code>"}, Means: samekey.MeansMismatch},
	}}
}

// AWS is a service with a token in its JSON body, by the name of the member: clientToken, clientRequestToken, or another
// that the service has. Life and length are the service's own: 64 is EC2's, and what most other limits allow; a member
// that wants more, or a certain form, needs a copy with MaxLength and Format.
//
// Another payload is IdempotentParameterMismatch (Config, SSO Admin) or a 409 (IoT Wireless). PriorRequestNotComplete and
// TransactionInProgressException stand for a request in progress; they are known from the lists of what the SDK retries.
// Where in the answer the codes are is not documented.
//
// Sources: https://github.com/aws/aws-sdk-go-v2 (aws/retry/standard.go), https://github.com/smithy-lang/smithy
// (docs/source-2.0/spec/behavior-traits.rst), https://github.com/aws/smithy-go (rand/uuid.go).
func AWS(member string) samekey.Contract {
	refused := []int{400, 409}
	return samekey.Contract{
		Name: "aws-" + member, Carrier: samekey.BodyMember("/" + member), MaxLength: 64,
		Rules: []samekey.Rule{
			{If: samekey.Match{Status: refused, Contains: "IdempotentParameterMismatch"}, Means: samekey.MeansMismatch},
			{If: samekey.Match{Status: refused, Contains: "PriorRequestNotComplete"}, Means: samekey.MeansInProgress},
			{If: samekey.Match{Status: refused, Contains: "TransactionInProgressException"}, Means: samekey.MeansInProgress},
		},
	}
}

// GoogleCloud is the REST form of AIP-155, such as Compute's: requestId in the query, a UUID that is not all zeros, known
// for at least an hour at many services. Only successes are replayed, or the present state in their place. Any mutating
// method may take it, DELETE too, which a policy has to call a command.
//
// Mismatch and in progress are not documented.
//
// Sources: https://github.com/aip-dev/google.aip.dev (aip/general/0155.md),
// https://cloud.google.com/python/docs/reference/networkconnectivity/1.6.0/google.cloud.networkconnectivity_v1alpha1.types.DeleteHubRequest.
var GoogleCloud = samekey.Contract{
	Name: "google-cloud", Carrier: samekey.QueryParam("requestId"), MaxLength: 36, Format: uuid4, Life: time.Hour,
}

// AzureRepeatability is OASIS Repeatable Requests 1.0 as Azure has it: two headers, a UUIDv4 and the time of the first
// send, known for at least 5 minutes. Repeatability-Result is on first and repeated answers alike, so that it tells no
// replay. An operation without support is to answer 501, and has done nothing then.
//
// Unverified: Repeatability-Result: rejected with a 400 for another payload, and accepted on repeats. In progress is not
// documented.
//
// Sources: https://docs.oasis-open.org/odata/repeatable-requests/v1.0/cs01/repeatable-requests-v1.0-cs01.html,
// https://github.com/microsoft/api-guidelines (azure/Guidelines.md), https://github.com/Azure/azure-sdk-for-go
// (sdk/azcore/runtime/policy_retry.go).
var AzureRepeatability = samekey.Contract{
	Name: "azure-repeatability", Carrier: samekey.Repeatability, MaxLength: 36, Format: uuid4, Life: 5 * time.Minute,
	Rules: []samekey.Rule{
		{If: samekey.Match{Header: "Repeatability-Result", Values: []string{"rejected"}}, Means: samekey.MeansMismatch},
		{If: status(501), Means: samekey.MeansRejected},
	},
}
