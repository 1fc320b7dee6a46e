package config

import (
	"strings"
	"testing"
)

// FuzzDecode: whatever a file holds, reading it does not panic, and what decodes can be located.
func FuzzDecode(f *testing.F) {
	f.Add("state = 'a'\n[[shop]]\nname = \"x\"\n[[shop.rule]]\nwhen = ['a', 'b']\n[shop.rule.deep]\nvalue = 1\n")
	f.Add("a.b.c = { d = 1, e = [ { f = 2 } ] }\n\"quoted key\" = 1\n[a.'b.c']\n")
	f.Fuzz(func(t *testing.T, text string) {
		var open map[string]any
		if decode("file.toml", []byte(text), &open) != nil {
			return
		}
		for field, line := range locate([]byte(text)) {
			if line < 1 || line > strings.Count(text, "\n")+1 {
				t.Fatalf("%q stands in line %d of %d", field, line, strings.Count(text, "\n")+1)
			}
		}
	})
}
