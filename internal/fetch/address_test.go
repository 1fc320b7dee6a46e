package fetch_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"countersign/internal/fetch"
)

// P-3-27 P-3-28
func TestAddressThatIsNotPublicIsRefusedWithoutConnecting(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	for name, addresses := range map[string]string{
		"loopback":             "127.0.0.1",
		"loopback elsewhere":   "127.8.9.10",
		"loopback 6":           "::1",
		"mapped loopback":      "::ffff:127.0.0.1",
		"unspecified":          "0.0.0.0",
		"unspecified 6":        "::",
		"private 10":           "10.0.0.1",
		"private 172":          "172.16.0.1",
		"private 172 end":      "172.31.255.255",
		"private 192":          "192.168.1.1",
		"mapped private":       "::ffff:10.0.0.1",
		"unique local":         "fd00::1",
		"link-local":           "169.254.10.10",
		"cloud metadata":       "169.254.169.254",
		"link-local 6":         "fe80::1",
		"carrier-grade NAT":    "100.64.0.1",
		"NAT64 of loopback":    "64:ff9b::7f00:1",
		"6to4 of loopback":     "2002:7f00:1::1",
		"multicast":            "224.0.0.1",
		"broadcast":            "255.255.255.255",
		"all of several":       "127.0.0.1 10.0.0.1 ::1",
		"both families, local": "127.0.0.1 ::1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := fetch.Options{Authorities: s.pool, Resolver: resolver(map[string][]string{"outdoor.example": {addresses}})}
			_, err := client(t, options).Get(t.Context(), s.url("outdoor.example", "/"), fetch.GetOptions{})
			if !errors.Is(err, fetch.ErrAddress) {
				t.Errorf("got %v, want a refused address", err)
			}
		})
	}
	t.Cleanup(func() {
		if made := s.dials.Load(); made != 0 {
			t.Errorf("%d TCP connections were made", made)
		}
	})
}

// P-3-27 P-3-28
func TestURLThatNamesALocalAddressIsRefusedWithoutConnecting(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	for host, want := range map[string]fetch.Kind{
		"127.0.0.1":           fetch.ErrAddress,
		"[::1]":               fetch.ErrAddress,
		"[::]":                fetch.ErrAddress,
		"[::ffff:7f00:1]":     fetch.ErrAddress,
		"[::ffff:127.0.0.1]":  fetch.ErrAddress,
		"[0:0:0:0:0:0:0:1]":   fetch.ErrAddress,
		"[fe80::1%25lo]":      fetch.ErrAddress,
		"169.254.169.254":     fetch.ErrAddress,
		"0.0.0.0":             fetch.ErrAddress,
		"127.1":               fetch.ErrURL,
		"0x7f.1":              fetch.ErrURL,
		"0X7F000001":          fetch.ErrURL,
		"2130706433":          fetch.ErrURL,
		"0177.0.0.1":          fetch.ErrURL,
		"127.0.0.1.":          fetch.ErrURL,
		"0":                   fetch.ErrURL,
		"１２７.0.0.1":           fetch.ErrURL, // full-width digits become plain ones in the xn-- form
		"good.example@[::1]":  fetch.ErrURL,
		"user:pass@127.0.0.1": fetch.ErrURL,
		"localhost":           fetch.ErrAddress,
	} {
		t.Run(host, func(t *testing.T) {
			t.Parallel()
			options := fetch.Options{Authorities: s.pool, Resolver: resolver(map[string][]string{"localhost": {"127.0.0.1"}})}
			url := "https://" + host + ":" + strconv.Itoa(int(s.port)) + "/"
			_, err := client(t, options).Get(t.Context(), url, fetch.GetOptions{})
			if !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
	t.Cleanup(func() {
		if made := s.dials.Load(); made != 0 {
			t.Errorf("%d TCP connections were made", made)
		}
	})
}

// P-3-27 P-3-28
func TestRedirectToALocalAddressIsRefusedWithoutConnecting(t *testing.T) {
	t.Parallel()
	inside := serve(t, writeDocument)
	for name, target := range map[string]string{
		"loopback":        inside.url("127.0.0.1", "/"),
		"loopback 6":      inside.url("::1", "/"),
		"mapped loopback": inside.url("::ffff:127.0.0.1", "/"),
		"name":            inside.url("rebound.example", "/"),
		"odd spelling":    inside.url("127.1", "/"),
		"metadata":        "https://169.254.169.254/latest/meta-data/",
		"user":            strings.Replace(inside.url("127.0.0.1", "/"), "//", "//outdoor.example@", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, target, http.StatusFound)
			})
			options := s.mapped("outdoor.example")
			options.Resolver = resolver(map[string][]string{"rebound.example": {"127.0.0.1"}})
			_, err := client(t, options).Get(t.Context(), "https://outdoor.example/", fetch.GetOptions{MaxRedirects: 5})
			if !errors.Is(err, fetch.ErrAddress) && !errors.Is(err, fetch.ErrURL) {
				t.Errorf("got %v, want a refusal", err)
			}
			if s.dials.Load() != 1 {
				t.Errorf("the server that redirects was reached %d times, want once", s.dials.Load())
			}
		})
	}
	t.Cleanup(func() {
		if made := inside.dials.Load(); made != 0 {
			t.Errorf("%d TCP connections were made to where the redirects lead", made)
		}
	})
}

// 127.0.0.2 stands for a public address here: the option makes it the one that may be connected to.
func withPublic(s *server, replies ...string) fetch.Options {
	return fetch.Options{
		Authorities: s.pool,
		Allow:       []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")},
		Resolver:    resolver(map[string][]string{"outdoor.example": replies}),
	}
}

// P-3-27 P-3-28
func TestNameThatChangesItsAddressIsCheckedAtEveryConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // so that the second request has to connect
		writeDocument(w, r)
	})
	c := client(t, withPublic(s, "127.0.0.2", "127.0.0.1"))
	if _, err := c.Get(t.Context(), s.url("outdoor.example", "/"), fetch.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	_, err := c.Get(t.Context(), s.url("outdoor.example", "/"), fetch.GetOptions{})
	if !errors.Is(err, fetch.ErrAddress) {
		t.Errorf("got %v, want a refused address", err)
	}
	if s.dials.Load() != 1 {
		t.Errorf("%d connections were made, want 1", s.dials.Load())
	}
}

func TestKeptConnectionIsReusedWithoutLookingTheNameUpAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	c := client(t, withPublic(s, "127.0.0.2", "10.0.0.1"))
	for range 5 {
		if _, err := c.Get(t.Context(), s.url("outdoor.example", "/"), fetch.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if s.dials.Load() != 1 {
		t.Errorf("%d connections were made, want 1", s.dials.Load())
	}
}

// P-3-27 P-3-28
func TestOnlyThePublicOneOfSeveralAddressesIsConnectedTo(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	})
	c := client(t, withPublic(s, "127.0.0.1 127.0.0.2 ::1"))
	response, err := c.Get(t.Context(), s.url("outdoor.example", "/"), fetch.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(response.Body), "127.0.0.2") || s.dials.Load() != 1 {
		t.Errorf("reached %s with %d connections, want 127.0.0.2 with one", response.Body, s.dials.Load())
	}
}

// P-3-29
func TestLocalAddressWorksWhenConfiguredOnPurpose(t *testing.T) {
	t.Parallel()
	s := serve(t, writeDocument)
	port := strconv.Itoa(int(s.port))
	mapping, err := fetch.ParseResolve("outdoor.example=127.0.0.1:" + port)
	if err != nil {
		t.Fatal(err)
	}
	local := resolver(map[string][]string{"outdoor.example": {"127.0.0.1"}})
	for name, test := range map[string]struct {
		options fetch.Options
		url     string
		want    error
	}{
		"default":         {fetch.Options{}, s.url("outdoor.example", "/"), fetch.ErrAddress},
		"host mapped":     {fetch.Options{Resolve: []fetch.Mapping{mapping}}, "https://outdoor.example/", nil},
		"upper case":      {fetch.Options{Resolve: []fetch.Mapping{mapping}}, "https://OUTDOOR.example/", nil},
		"other port":      {fetch.Options{Resolve: []fetch.Mapping{mapping}}, s.url("outdoor.example", "/"), fetch.ErrAddress},
		"other host":      {fetch.Options{Resolve: []fetch.Mapping{mapping}}, s.url("127.0.0.1", "/"), fetch.ErrAddress},
		"network allowed": {fetch.Options{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, s.url("outdoor.example", "/"), nil},
		"other network":   {fetch.Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, s.url("outdoor.example", "/"), fetch.ErrAddress},
		"network 6": {
			fetch.Options{Allow: []netip.Prefix{netip.MustParsePrefix("::1/128")}, Resolver: resolver(map[string][]string{"outdoor.example": {"::1"}})},
			s.url("outdoor.example", "/"), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			options := test.options
			options.Authorities = s.pool
			if options.Resolver == nil {
				options.Resolver = local
			}
			_, err := client(t, options).Get(t.Context(), test.url, fetch.GetOptions{})
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestRefusalSaysWhyAndWhatToDo(t *testing.T) {
	t.Parallel()
	c := client(t, fetch.Options{Resolver: resolver(map[string][]string{
		"outdoor.example": {"10.0.0.1"}, "mapped.example": {"::ffff:10.0.0.1"}, "meta.example": {"169.254.169.254"},
	})})
	for url, want := range map[string]string{
		"https://outdoor.example/secret":      "outdoor.example resolves to the private address 10.0.0.1, which this program refuses to connect to; name it with --resolve outdoor.example=10.0.0.1:443 if that is on purpose",
		"https://outdoor.example:8443/secret": "outdoor.example resolves to the private address 10.0.0.1, which this program refuses to connect to; name it with --resolve outdoor.example:8443=10.0.0.1:8443 if that is on purpose",
		"https://mapped.example/":             "mapped.example resolves to the private address 10.0.0.1, which this program refuses to connect to; name it with --resolve mapped.example=10.0.0.1:443 if that is on purpose",
		"https://meta.example/":               "meta.example resolves to the link-local address 169.254.169.254, which this program refuses to connect to; name it with --resolve meta.example=169.254.169.254:443 if that is on purpose",
		"https://[::1]/":                      "the URL names the loopback address ::1, which this program refuses to connect to; name it with --resolve [::1]=[::1]:443 if that is on purpose",
		"https://100.64.0.1/":                 "the URL names the special-purpose address 100.64.0.1, which this program refuses to connect to; name it with --resolve 100.64.0.1=100.64.0.1:443 if that is on purpose",
		"https://nowhere.example/":            "the address of nowhere.example cannot be found (no such host); a host on this machine is named with --resolve nowhere.example=127.0.0.1:PORT",
		"http://outdoor.example/":             "only https URLs are used",
		"https://u:p@outdoor.example/":        "the URL has a user name in front of its host",
		"https://outdoor.example/%zz":         "this is not a URL",
	} {
		_, err := c.Get(t.Context(), url, fetch.GetOptions{Timeout: time.Second})
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", url, err, want)
		}
	}
}
