// Package yaml reads policy files in YAML, with the names, the checks and the errors of [samekey.LoadPolicies]:
//
//	# yaml-language-server: $schema=https://raw.githubusercontent.com/samekey/samekey/main/cmd/samekey/tool/policy.schema.json
//	Default:
//	  AttemptTimeout: 5s
//	Endpoints:
//	  POST api.bank.test/v1/payments: &careful
//	    MaxAttempts: 6
//	    RetryStatus: [408, 429, 5xx]
//	  POST api.bank.test/v1/orders: *careful
//	  POST api.old.test/:
//	    Contract: {Carrier: none}
//
// A file is one document, and means what the same document means in JSON: true and false are the only switches (yes and on
// are words), numbers are written as in JSON, and a name that is there twice is refused. Anchors and aliases are read, as
// far as they stand for at most a hundred thousand values; merge keys (<<) and tags of one's own are not: what endpoints
// have in common goes into Default.
//
// # The parser
//
// It is go.yaml.in/yaml/v4, kept by the YAML organisation and in active development, where v2 and v3 of the same
// project get security fixes only, and gopkg.in/yaml.v3 none. It gives nodes with their lines, which is all that is
// asked of it here. github.com/goccy/go-yaml does so too; its releases are further apart.
package yaml
