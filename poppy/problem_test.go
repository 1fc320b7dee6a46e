package poppy_test

import (
	"errors"
	"strings"
	"testing"

	"countersign/poppy"
)

func TestProblemsTellPlaceRuleAndSection(t *testing.T) {
	t.Parallel()
	_, err := poppy.ParseDocument(load(t, "poppy.json", "auth/issuer", "http://sEcReT.example", "apis/1/url", ""))
	want := "auth.issuer must be an https URL (section 3.2)\napis[1].url is required: an https URL (section 6)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	first, ok := errors.AsType[*poppy.FieldError](err)
	if !ok || first.Field != "auth.issuer" || first.Section != "3.2" {
		t.Errorf("got %+v", first)
	}
}

func TestProblemsOfJSONNameThePlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"auth":{"issuer":"a","issuer":"sEcReT"}}`:                   "auth.issuer has a member name twice",
		`{"apis":[{"type":"mcp"},{"type":5}]}`:                        "apis[1].type has the wrong type",
		`{"extensions":{"sEc\u001bReT/a b":{"x":1,"x":2}}}`:           `extensions["sEc\x1bReT/a b"].x has a member name twice`,
		`{"` + strings.Repeat("n", 100) + `":{"x":1,"x":2}}`:          strings.Repeat("n", 64),
		`{"organization":"sEcReT"}`:                                   "organization has the wrong type",
		`{"protocol_version":"0.3"`:                                   "is not well-formed JSON",
		`<html>sEcReT</html>`:                                         "is not well-formed JSON",
		`{"x":"` + strings.Repeat("x", poppy.MaxMetadataBytes) + `"}`: "must not be longer than 65536 bytes",
		strings.Repeat("[", 100):                                      "nested deeper",
	} {
		_, err := poppy.ParseDocument([]byte(text))
		if len(fields(t, err)) == 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
		if strings.Contains(err.Error(), "sEcReT") || strings.ContainsAny(err.Error(), "\x1b") || len(err.Error()) > 300 {
			t.Errorf("the error repeats a value: %v", err)
		}
	}
}
