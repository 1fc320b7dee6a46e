package dpop

import "testing"

func TestNormalizeURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://api.outdoor.example/orders":            "https://api.outdoor.example/orders",
		"https://api.outdoor.example":                   "https://api.outdoor.example/",
		"https://api.outdoor.example?a=1":               "https://api.outdoor.example/",
		"https://api.outdoor.example/orders?a=1#b":      "https://api.outdoor.example/orders",
		"https://api.outdoor.example/orders/":           "https://api.outdoor.example/orders/", // differs from the one without
		"HTTPS://API.Outdoor.Example/Orders":            "https://api.outdoor.example/Orders",
		"https://api.outdoor.example:443/":              "https://api.outdoor.example/",
		"https://api.outdoor.example:/":                 "https://api.outdoor.example/",
		"https://api.outdoor.example:8443/":             "https://api.outdoor.example:8443/",
		"https://api.outdoor.example:0443/":             "https://api.outdoor.example:0443/",
		"https://outdoor443/":                           "https://outdoor443/",
		"https://[2001:DB8::443]/":                      "https://[2001:db8::443]/",
		"https://[2001:db8::1]:443/":                    "https://[2001:db8::1]/",
		"https://api.outdoor.example/a%2fb":             "https://api.outdoor.example/a%2Fb", // no path separator
		"https://api.outdoor.example/%7Euser/%41%2d%5f": "https://api.outdoor.example/~user/A-_",
		"https://api.outdoor.example/a%252Fb":           "https://api.outdoor.example/a%252Fb", // decoded once only
		"https://api.outdoor.example/a/./b/../c":        "https://api.outdoor.example/a/c",
		"https://api.outdoor.example/a/%2e%2E/c":        "https://api.outdoor.example/c",
		"https://api.outdoor.example/../../c":           "https://api.outdoor.example/c",
		"https://api.outdoor.example/a/..":              "https://api.outdoor.example/",
		"https://api.outdoor.example/a/b/.":             "https://api.outdoor.example/a/b/",
		"https://api.outdoor.example//a//b":             "https://api.outdoor.example//a//b", // empty segments count
		"https://api.outdoor.example/a b/é":             "https://api.outdoor.example/a%20b/%C3%A9",
	} {
		if got, err := normalizeURL(raw); err != nil || got != want {
			t.Errorf("%s: got %s, %v; want %s", raw, got, err, want)
		}
	}
	for _, raw := range []string{"", "/orders", "api.outdoor.example/orders", "http://api.outdoor.example/", "https:/orders", "https:///orders", "https://:", "https://:443/orders", "https://a@api.outdoor.example/", "https://api.outdoor.example/%zz", "https://api.outdoor.example/\n", "wss://api.outdoor.example/"} {
		if got, err := normalizeURL(raw); err == nil || got != "" {
			t.Errorf("%q: got %s", raw, got)
		}
	}
}

func FuzzNormalizeURL(f *testing.F) {
	f.Add("https://api.outdoor.example/a/../%7eb//./%2F..?q#f")
	f.Fuzz(func(t *testing.T, raw string) {
		once, err := normalizeURL(raw)
		if err != nil {
			if once != "" {
				t.Fatal("a URL together with an error")
			}
			return
		}
		if twice, err := normalizeURL(once); err != nil || twice != once {
			t.Fatalf("%q becomes %q, and that %q (%v)", raw, once, twice, err)
		}
	})
}
