package tool

import (
	"github.com/samekey/samekey/persist"
	"github.com/samekey/samekey/persist/sealed"
)

// readable is text, or the ID of the key that it is sealed under.
func readable(text string) (plain, key string) {
	if id, is := sealed.KeyOf(text); is {
		return "", id
	}
	return text, ""
}

// sealedKey is the ID of the key that the request of r, or how far it has got, is sealed under; "" if it is not.
func sealedKey(r *persist.Record) string {
	for _, text := range []string{r.Target, r.Progress.PollURL} {
		if _, key := readable(text); key != "" {
			return key
		}
	}
	return ""
}

func underKey(key string) string { return "sealed under key " + key }

// onlyProgram is what can be done about a sealed operation.
const onlyProgram = "only the program can send or rekey it; abandon and forget work"

// opened refuses what is sealed: the tool has no key.
func opened(r *persist.Record) error {
	if key := sealedKey(r); key != "" {
		return no("%s is %s: %s", name(r.Ref), underKey(key), onlyProgram)
	}
	return nil
}

// requestOf is how outputs show a request.
func requestOf(method, url, key string) string {
	if key != "" {
		url = underKey(key)
	}
	return method + " " + url
}
