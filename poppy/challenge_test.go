package poppy_test

import (
	"reflect"
	"strings"
	"testing"

	"countersign/poppy"
)

func TestParseChallenges(t *testing.T) {
	t.Parallel()
	type params = []poppy.Param
	for name, test := range map[string]struct {
		values []string
		want   []poppy.Challenge
	}{
		"none":       {nil, nil},
		"empty":      {[]string{"", " , ,"}, nil},
		"bare":       {[]string{"DPoP"}, []poppy.Challenge{{Scheme: "DPoP"}}},
		"two bare":   {[]string{"Negotiate, DPoP"}, []poppy.Challenge{{Scheme: "Negotiate"}, {Scheme: "DPoP"}}},
		"one":        {[]string{`DPoP error="invalid_token"`}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"error", "invalid_token"}}}}},
		"a token":    {[]string{`DPoP error=invalid_token`}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"error", "invalid_token"}}}}},
		"spaces":     {[]string{"DPoP \t error = \"a\" ,\tscope\t=\tb "}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"error", "a"}, {"scope", "b"}}}}},
		"commas":     {[]string{`,, DPoP a="1",,b="2",, Bearer c="3",`}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"a", "1"}, {"b", "2"}}}, {Scheme: "Bearer", Params: params{{"c", "3"}}}}},
		"in a quote": {[]string{`DPoP a="b, Bearer c=\"d\" \\", e=f`}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"a", `b, Bearer c="d" \`}, {"e", "f"}}}}},
		"empty text": {[]string{`DPoP a=""`}, []poppy.Challenge{{Scheme: "DPoP", Params: params{{"a", ""}}}}},
		"token68":    {[]string{`Negotiate YII+/a==, DPoP a=b`}, []poppy.Challenge{{Scheme: "Negotiate", Token68: "YII+/a=="}, {Scheme: "DPoP", Params: params{{"a", "b"}}}}},
		"lines": {
			[]string{`Bearer a=1`, `DPoP b=2, Basic realm="x y"`},
			[]poppy.Challenge{{Scheme: "Bearer", Params: params{{"a", "1"}}}, {Scheme: "DPoP", Params: params{{"b", "2"}}}, {Scheme: "Basic", Params: params{{"realm", "x y"}}}},
		},
		"bare and then some": {[]string{`Basic, DPoP a=b`}, []poppy.Challenge{{Scheme: "Basic"}, {Scheme: "DPoP", Params: params{{"a", "b"}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := poppy.ParseChallenges(test.values)
			if err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestParseChallengesRefuses(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"no scheme":          `="a"`,
		"parameter first":    `error="a"`,
		"open quote":         `DPoP a="b`,
		"open escape":        `DPoP a="b\`,
		"no value":           `DPoP a=, b=c`,
		"two values":         `DPoP a="b" "c"`,
		"behind a quote":     `DPoP a="b"c`,
		"a name twice":       `DPoP a="b", A="c"`,
		"not a token":        "DPoP a=b@c",
		"text after token68": `Negotiate abc== def`,
		"odd scheme":         `D(PoP) a=b`,
		"too long":           `DPoP a="` + strings.Repeat("a", poppy.MaxChallengeBytes) + `"`,
		"too many":           strings.Repeat("A, ", poppy.MaxChallenges) + "A",
		"too many names":     "DPoP " + manyParams(33),
	} {
		if got, err := poppy.ParseChallenges([]string{value}); err == nil || got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
	if _, err := poppy.ParseChallenges([]string{"A " + manyParams(32)}); err != nil {
		t.Error(err)
	}
	half := strings.Repeat("a", poppy.MaxChallengeBytes/2+1)
	if _, err := poppy.ParseChallenges([]string{half, half}); err == nil {
		t.Error("the bound is for one line only")
	}
}

func manyParams(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = strings.Repeat("p", i+1) + "=1"
	}
	return strings.Join(names, ",")
}

func TestChallengeIsWrittenSafely(t *testing.T) {
	t.Parallel()
	c := poppy.Challenge{Scheme: "DPoP", Params: []poppy.Param{{Name: "error", Value: `~ a"b\c`}, {Name: "scope", Value: "x\r\nSet-Cookie: y\x00é"}}}
	const want = `DPoP error="~ a\"b\\c", scope="x??Set-Cookie: y??"`
	if got := c.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	read, err := poppy.ParseChallenges([]string{c.String()})
	if err != nil || len(read) != 1 || read[0].Param("ERROR") != `~ a"b\c` || read[0].Param("none") != "" {
		t.Errorf("got %+v, %v", read, err)
	}
	if got := (poppy.Challenge{Scheme: "Negotiate", Token68: "abc="}).String(); got != "Negotiate abc=" {
		t.Errorf("got %s", got)
	}
}
