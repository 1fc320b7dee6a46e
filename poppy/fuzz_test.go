package poppy_test

import (
	"bytes"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"countersign/internal/strictjson"
	"countersign/poppy"
)

// fuzzParser checks of a parser that nothing panics, that an error comes alone, and that what it read is written so that
// it is read as the same again.
func fuzzParser[T any](f *testing.F, parse func([]byte) (T, error), write func(T) ([]byte, error), seeds ...string) {
	f.Helper()
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := parse(data)
		if err != nil {
			if !reflect.ValueOf(&v).Elem().IsZero() {
				t.Fatalf("%+v together with %v", v, err)
			}
			if err.Error() == "" {
				t.Fatal("an error without text")
			}
			return
		}
		written, err := write(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parse(written)
		if err != nil {
			t.Fatalf("%s, written from %s: %v", written, data, err)
		}
		rewritten, err := write(again)
		if err != nil || !bytes.Equal(written, rewritten) {
			t.Fatalf("%s is written again as %s, %v", written, rewritten, err)
		}
	})
}

func marshal[T any](v T) ([]byte, error) { return strictjson.Marshal(v) }

func FuzzParseDocument(f *testing.F) {
	fuzzParser(f, poppy.ParseDocument, marshal, string(load(f, "poppy.json")))
}

func FuzzParseIssuerMetadata(f *testing.F) {
	fuzzParser(f, poppy.ParseIssuerMetadata, marshal, string(load(f, "issuer.json")))
}

func FuzzParseResourceMetadata(f *testing.F) {
	fuzzParser(f, func(data []byte) (poppy.ResourceMetadata, error) {
		return poppy.ParseResourceMetadata(data, mcpURL, issuer)
	}, marshal, string(load(f, "resource.json")))
}

func FuzzParseClientMetadata(f *testing.F) {
	fuzzParser(f, func(data []byte) (poppy.ClientMetadata, error) {
		return poppy.ParseClientMetadata(data, clientID)
	}, marshal, string(load(f, "client.json")))
}

func FuzzParseTokenResponse(f *testing.F) {
	fuzzParser(f, poppy.ParseTokenResponse, poppy.TokenResponse.Encode, signedIn, signedOut)
}

func FuzzParseDeviceAuthorization(f *testing.F) {
	fuzzParser(f, poppy.ParseDeviceAuthorization, poppy.DeviceAuthorization.Encode, deviceAnswer)
}

func FuzzParseMediatedRequest(f *testing.F) {
	fuzzParser(f, poppy.ParseMediatedRequest, poppy.MediatedRequest.Encode, `{"scope":"a","credentials":{"b":"c"}}`)
}

func FuzzParseMediatedCode(f *testing.F) {
	fuzzParser(f, poppy.ParseMediatedCode, poppy.EncodeMediatedCode, `{"code":"123456"}`)
}

func FuzzParseMediatedResponse(f *testing.F) {
	fuzzParser(f, poppy.ParseMediatedResponse, poppy.MediatedResponse.Encode,
		`{"status":"failed"}`, `{"status":"code_required","sign_in_id":"a","expires_at":"2026-10-03T00:15:00Z"}`,
		`{"status":"complete",`+signedIn[1:])
}

func FuzzParseReport(f *testing.F) {
	fuzzParser(f, poppy.ParseReport, marshal, `{"kind":"missing","task":"a","description":"b"}`)
}

func FuzzParseStartRequest(f *testing.F) {
	fuzzParser(f, poppy.ParseStartRequest, func(r poppy.StartRequest) ([]byte, error) {
		if _, err := r.Digest(); err != nil {
			return nil, err
		}
		return strictjson.Marshal(r)
	}, start)
}

func FuzzParseSendRequest(f *testing.F) {
	fuzzParser(f, poppy.ParseSendRequest, marshal, start)
}

func FuzzParseAccepted(f *testing.F) {
	fuzzParser(f, poppy.ParseAccepted, marshal, `{"conversation_id":"a","status":"working","responder":"agent"}`)
}

func FuzzParsePage(f *testing.F) {
	fuzzParser(f, poppy.ParsePage, marshal, string(load(f, "page.json")))
}

func FuzzParseEvent(f *testing.F) {
	fuzzParser(f, poppy.ParseEvent, marshal, `{"id":"a","type":"state","created_at":"2026-10-08T19:09:00+01:00","status":"idle","responder":"human"}`)
}

func FuzzParseTextDelta(f *testing.F) {
	fuzzParser(f, poppy.ParseTextDelta, marshal, `{"message_id":"a","text":"b"}`)
}

func FuzzParseOperation(f *testing.F) {
	fuzzParser(f, poppy.ParseOperation, func(o poppy.Operation) ([]byte, error) {
		if digest, err := o.TermsDigest(); (err == nil) != (len(digest) == 64) {
			return nil, err
		}
		return strictjson.Marshal(o)
	}, string(load(f, "proposed.json")), string(load(f, "succeeded.json")))
}

func FuzzFindOperation(f *testing.F) {
	f.Add([]byte(`{"operation":` + string(load(f, "proposed.json")) + `}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		o, found, err := poppy.FindOperation(data)
		if found != (o.OperationID != "") || found && err != nil {
			t.Fatalf("got %+v, %t, %v", o, found, err)
		}
	})
}

func FuzzParseConfirm(f *testing.F) {
	fuzzParser(f, poppy.ParseConfirm, marshal, `{"revision":1,"approved_by":"user"}`)
}

func FuzzParseScopes(f *testing.F) {
	fuzzParser(f, func(data []byte) (poppy.Scopes, error) { return poppy.ParseScopes(string(data)) },
		func(s poppy.Scopes) ([]byte, error) { return []byte(s.String()), nil }, "a b", "")
}

// What is accepted as a URL has one host, the same for every reader, and gives well-known URLs on that host.
func FuzzParseURL(f *testing.F) {
	f.Add("https://auth.outdoor.example/shop-a?b")
	f.Add("https://[::1]:443/")
	f.Fuzz(func(t *testing.T, text string) {
		u, err := poppy.ParseURL(text)
		if (err == nil) != (u != nil) {
			t.Fatalf("got %v, %v", u, err)
		}
		if err != nil {
			return
		}
		if !poppy.SameDomain(text, text) || strings.ContainsAny(u.Host, `/\?#@`) {
			t.Fatalf("host %q of %q", u.Host, text)
		}
		metadata, err := poppy.ResourceMetadataURL(text)
		if err != nil || !poppy.SameDomain(text, metadata) {
			t.Fatalf("%q for %q: %v", metadata, text, err)
		}
		if metadata, err := poppy.MetadataURL(text); err == nil && !poppy.SameDomain(text, metadata) {
			t.Fatalf("%q for %q", metadata, text)
		}
		if sub := poppy.SubURL(text, "../a?b#c"); len(sub) <= poppy.MaxURLBytes && !poppy.SameDomain(text, sub) {
			t.Fatalf("%q for %q", sub, text)
		}
	})
}

func FuzzParseChallenges(f *testing.F) {
	f.Add(`Bearer a="1", DPoP error="b\"", algs=c, Negotiate YII==`)
	f.Fuzz(func(t *testing.T, value string) {
		challenges, err := poppy.ParseChallenges([]string{value})
		if err != nil && challenges != nil {
			t.Fatalf("%+v together with %v", challenges, err)
		}
		for _, c := range challenges {
			again, err := poppy.ParseChallenges([]string{c.String()})
			if err != nil || len(again) != 1 || again[0].String() != c.String() {
				t.Fatalf("%s is read as %+v, %v", c, again, err)
			}
		}
	})
}

func FuzzParseError(f *testing.F) {
	f.Add(401, `DPoP error="use_dpop_nonce"`, []byte(`{"error":"a","error_description":"b","operation":{}}`))
	f.Fuzz(func(t *testing.T, status int, challenge string, body []byte) {
		e := poppy.ParseError(status, http.Header{"Www-Authenticate": {challenge}}, body)
		if e.Error() == "" || e.HTTPStatus != status || strings.ContainsAny(e.Description, "\x00\x1b\r\n") {
			t.Fatalf("got %+v", e)
		}
	})
}
