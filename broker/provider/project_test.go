package provider_test

import (
	"strings"
	"testing"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

func TestProject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		result string
		names  map[string]string
		want   string
		cut    bool
	}{
		"an object is kept":                 {`{"b":[1,2.50,true,null],"a":"x"}`, nil, `{"a":"x","b":[1,2.50,true,null]}`, false},
		"a number is not rounded":           {`{"id":9007199254740993}`, nil, `{"id":9007199254740993}`, false},
		"an array becomes items":            {`[1,2]`, nil, `{"items":[1,2]}`, false},
		"a scalar becomes value":            {`"x"`, nil, `{"value":"x"}`, false},
		"nothing is nothing":                {``, nil, `{}`, true},
		"broken JSON is nothing":            {`{"a":`, nil, `{}`, true},
		"B-results-03 a blanked name moves": {`{"key":"size","n":1}`, map[string]string{"key": "name"}, `{"n":1,"name":"size"}`, false},
		"a blanked name without public one": {`{"next_token":"abc","n":1}`, nil, `{"n":1}`, true},
		"a public name that is taken":       {`{"key":"a","name":"b"}`, map[string]string{"key": "name"}, `{"name":"b"}`, true},
		"nested names too":                  {`{"a":[{"accessKey":"x"}]}`, nil, `{"a":[{}]}`, true},
		"B-results-04 a credential inside":  {`{"log":"used ghp_0123456789abcdef"}`, nil, `{"log":"used [redacted]"}`, true},
		"a credential as a name":            {`{"ghp_0123456789abcdef":1}`, nil, `{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, cut := provider.Project(strictjson.Raw(c.result), c.names)
			if string(got) != c.want || cut != c.cut {
				t.Fatalf("%s, cut %v", got, cut)
			}
		})
	}
}

// B-results-02
func TestProjectIsBounded(t *testing.T) {
	t.Parallel()
	for name, result := range map[string]string{
		"long string":                          `{"a":"` + strings.Repeat(`\u0001`, provider.MaxResult) + `"}`,
		"many members":                         `{"a":[` + strings.Repeat(`{"b":1},`, provider.MaxResult) + `{}]}`,
		"long names":                           `{"` + strings.Repeat("a", provider.MaxResult) + `":1}`,
		"a name that grows when it is written": `{"` + strings.Repeat(`\u0001`, provider.MaxResult/2) + `":1}`,
		"long number":                          `{"a":` + strings.Repeat("1", 2*provider.MaxResult) + `}`,
		"deep":                                 `{"a":` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`,
		"deepest":                              strings.Repeat("[", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, cut := provider.Project(strictjson.Raw(result), nil)
			if len(got) > provider.MaxResult || !cut || !got.IsValid() || got.Kind() != '{' {
				t.Fatalf("%d bytes, cut %v, valid %v", len(got), cut, got.IsValid())
			}
		})
	}
	whole := strings.Repeat("x", provider.MaxResult/2)
	if got, cut := provider.Project(strictjson.Raw(`{"a":"`+whole+`"}`), nil); cut || !strings.Contains(string(got), whole) {
		t.Fatal("what fits must stay")
	}
}

func FuzzProject(f *testing.F) {
	f.Add([]byte(`{"a":[{"b":"Bearer 0123456789"}],"key":{"x":1e3}}`))
	f.Add([]byte(`[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]`))
	f.Fuzz(func(t *testing.T, result []byte) {
		got, cut := provider.Project(result, map[string]string{"key": "name"})
		if len(got) > provider.MaxResult || got.Kind() != '{' || !got.IsValid() {
			t.Fatalf("%s", got)
		}
		if again, _ := provider.Project(got, nil); !cut && string(again) != string(got) {
			t.Fatalf("projected again: %s, then %s", got, again)
		}
	})
}

func TestBlanked(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"token": true, "key": true, "Authorization": true, "client_secret": true, "nextPageToken": true, "APIKey": true, "X-Auth": true,
		"private.key": true, "passwordHash": true, "accesstoken": true, "CLIENTSECRET": true, "name": false, "keyboard": false, "monkey": false, "author": false, "tokenizer": false, "": false,
	} {
		if provider.Blanked(name) != want {
			t.Errorf("%q: want %v", name, want)
		}
	}
}

// A string that takes more than what is left, and cannot be made shorter by a character, must not be tried for ever.
func TestProjectEndsWhereTheLastCharactersDoNotFit(t *testing.T) {
	t.Parallel()
	for _, last := range []string{`\u0001`, `\"\"\"`, `\u0001\u0001\u0001\u0001`} {
		for left := range 26 {
			result := `["` + strings.Repeat("a", provider.MaxResult-len(`{"items":["",]}`)-left) + `","` + last + `"]`
			got, _ := provider.Project(strictjson.Raw(result), nil)
			if len(got) > provider.MaxResult || !got.IsValid() {
				t.Fatalf("%d bytes, valid %v", len(got), got.IsValid())
			}
		}
	}
}
