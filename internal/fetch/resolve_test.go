package fetch_test

import (
	"net/netip"
	"strings"
	"testing"

	"countersign/internal/fetch"
)

func TestParseResolve(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]fetch.Mapping{
		"outdoor.example=127.0.0.1:8443":      {Host: "outdoor.example", Port: 443, Address: netip.MustParseAddrPort("127.0.0.1:8443")},
		"Outdoor.Example:444=127.0.0.1:8443":  {Host: "outdoor.example", Port: 444, Address: netip.MustParseAddrPort("127.0.0.1:8443")},
		"outdoor.example=[::1]:8443":          {Host: "outdoor.example", Port: 443, Address: netip.MustParseAddrPort("[::1]:8443")},
		"localhost:8443=127.0.0.1:8443":       {Host: "localhost", Port: 8443, Address: netip.MustParseAddrPort("127.0.0.1:8443")},
		"127.0.0.1:8443=127.0.0.1:8443":       {Host: "127.0.0.1", Port: 8443, Address: netip.MustParseAddrPort("127.0.0.1:8443")},
		"[::1]=[::1]:443":                     {Host: "::1", Port: 443, Address: netip.MustParseAddrPort("[::1]:443")},
		"[0:0::1]:8443=[::1]:8443":            {Host: "::1", Port: 8443, Address: netip.MustParseAddrPort("[::1]:8443")},
		"xn--bcher-kva.example=10.0.0.1:8443": {Host: "xn--bcher-kva.example", Port: 443, Address: netip.MustParseAddrPort("10.0.0.1:8443")},
	} {
		got, err := fetch.ParseResolve(text)
		if err != nil || got != want {
			t.Errorf("%s: got %v, %v, want %v", text, got, err, want)
		}
	}
}

func TestParseResolveSaysWhatToWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"outdoor.example":                        "write HOST=ADDR:PORT, such as outdoor.example=127.0.0.1:8443",
		"":                                       "write HOST=ADDR:PORT",
		"=127.0.0.1:8443":                        `"" is not a host: write it as in a URL`,
		"https://outdoor.example=127.0.0.1:8443": "without https:// or a path",
		"outdoor.example/=127.0.0.1:8443":        "without https:// or a path",
		"*.example=127.0.0.1:8443":               "is not a host",
		"outdoor..example=127.0.0.1:8443":        "is not a host",
		"bücher.example=127.0.0.1:8443":          "is not a host",
		"outdoor.example:=127.0.0.1:8443":        "leave it out for 443",
		"outdoor.example:0=127.0.0.1:8443":       "leave it out for 443",
		"outdoor.example:65536=127.0.0.1:8443":   "leave it out for 443",
		"outdoor.example:https=127.0.0.1:8443":   "leave it out for 443",
		"outdoor.example=127.0.0.1":              `"127.0.0.1" is not an address with a port: write it such as 127.0.0.1:8443`,
		"outdoor.example=localhost:8443":         "is not an address with a port",
		"outdoor.example=127.0.0.1:0":            "is not an address with a port",
		"outdoor.example=::1:8443":               "or [::1]:8443",
		"outdoor.example=":                       "is not an address with a port",
	} {
		got, err := fetch.ParseResolve(text)
		if err == nil || !strings.Contains(err.Error(), want) || got != (fetch.Mapping{}) {
			t.Errorf("%q: got %v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func FuzzParseResolve(f *testing.F) {
	for _, text := range []string{"outdoor.example=127.0.0.1:8443", "[::1]:1=[::1]:2", "a:b=c", "[=", "::1=[fe80::1%lo]:1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mapping, err := fetch.ParseResolve(text)
		if err != nil {
			if mapping != (fetch.Mapping{}) {
				t.Errorf("%q: a mapping came with the error", text)
			}
			return
		}
		again, err := fetch.ParseResolve(mapping.String())
		if err != nil || again != mapping {
			t.Errorf("%q was read as %v, which is read as %v, %v", text, mapping, again, err)
		}
	})
}
