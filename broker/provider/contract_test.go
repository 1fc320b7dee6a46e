package provider_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

func TestCanonical(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want string }{
		"sorted and minimal":          {"{ \"b\": 1.0, \"a\": \"\\u0061\" }", `{"a":"a","b":1}`},
		"largest exact number":        {`{"n":-9007199254740991}`, `{"n":-9007199254740991}`},
		"a number in a string":        {`{"n":"9007199254740993 \" 1e400"}`, `{"n":"9007199254740993 \" 1e400"}`},
		"a number that would round":   {`{"n":9007199254740993}`, ""},
		"a number far out":            {`{"a":[{"n":-1e300}]}`, ""},
		"a number that is none":       {`{"n":1e400}`, ""},
		"no object":                   {`[1]`, ""},
		"member twice":                {`{"a":1,"a":1}`, ""},
		"more behind":                 {`{} {}`, ""},
		"nothing":                     {``, ""},
		"a name that looks like one":  {`{"9007199254740993":1}`, `{"9007199254740993":1}`},
		"a fraction is a double":      {`{"n":0.10000000000000000555}`, `{"n":0.1}`},
		"backslash before the quote":  {`{"a":"\\","n":1}`, `{"a":"\\","n":1}`},
		"escaped quote, then numbers": {`{"a":"\\\"","n":[1,-0]}`, `{"a":"\\\"","n":[1,0]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := provider.Canonical(strictjson.Raw(c.in))
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Fatalf("%s, %v", got, err)
			}
		})
	}
}

func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"9007199254740993"],"b":{"c":null}}`, `{"n":9007199254740993}`, `{"\\\"":0}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		canonical, err := provider.Canonical(data)
		if err != nil {
			if canonical != nil {
				t.Fatal("a result with an error")
			}
			return
		}
		if again, err := provider.Canonical(canonical); err != nil || string(again) != string(canonical) {
			t.Fatalf("%s becomes %s, %v", canonical, again, err)
		}
		var check func(any)
		check = func(value any) {
			switch v := value.(type) {
			case float64:
				if v > 1<<53-1 || v < -(1<<53-1) {
					t.Fatalf("%s has %v", canonical, v)
				}
			case []any:
				for _, element := range v {
					check(element)
				}
			case map[string]any:
				for _, member := range v {
					check(member)
				}
			}
		}
		var value any
		if err := strictjson.Unmarshal(canonical, &value); err != nil {
			t.Fatal(err)
		}
		check(value)
	})
}

const target = `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
	"path":{"type":"string","maxLength":5,"pattern":"^[a-z/]+$"},"mode":{"enum":["a","b"]},"n":{"type":"integer","minimum":1},
	"at":{"type":"string","format":"date-time"}}}`

// B-providers-03
func TestSchemaTellsPlacesAndNoValues(t *testing.T) {
	t.Parallel()
	schema := provider.NewSchema(target)
	for name, c := range map[string]struct {
		document string
		want     []provider.Fault
	}{
		"fits":    {`{"path":"a/b","mode":"a","n":3}`, nil},
		"missing": {`{}`, []provider.Fault{{Pointer: "", Problem: "lacks path"}}},
		"everything wrong": {`{"path":"MARKMARK","mode":"MARK","n":0.5,"MARK~/x":1,"at":"MARK"}`, []provider.Fault{
			{Pointer: "/MARK~0~1x", Problem: "is not a known member"},
			{Pointer: "/at", Problem: "must be a valid date-time"},
			{Pointer: "/mode", Problem: "must be one of [a b]"},
			{Pointer: "/n", Problem: "must be integer"},
			{Pointer: "/path", Problem: "must have at most 5 characters"},
			{Pointer: "/path", Problem: "must match ^[a-z/]+$"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := schema.Validate(strictjson.Raw(c.document))
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("%+v, %v", got, err)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Errorf("%+v, want %+v", got[i], c.want[i])
				}
			}
		})
	}
	many := `{"path":"a"`
	for i := range 100 {
		many += `,"` + strconv.Itoa(i) + strings.Repeat("x", 300) + `":1`
	}
	got, err := schema.Validate(strictjson.Raw(many + "}"))
	if err != nil || len(got) != 20 || len(got[0].Pointer) > 80 {
		t.Fatalf("%d faults, %v", len(got), err)
	}
}

func TestSchemaMustBeClosedAndAlone(t *testing.T) {
	t.Parallel()
	for name, source := range map[string]string{
		"open":         `{"type":"object"}`,
		"no object":    `{"additionalProperties":false}`,
		"not JSON":     `{`,
		"not a schema": `{"type":"object","additionalProperties":false,"properties":{"a":{"type":"thing"}}}`,
		"file":         `{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"file:///etc/passwd"}}}`,
		"web":          `{"type":"object","additionalProperties":false,"properties":{"a":{"$ref":"https://outdoor.example/schema"}}}`,
	} {
		if _, err := provider.NewSchema(source).Validate(strictjson.Raw(`{}`)); err == nil {
			t.Errorf("%s: must be an error", name)
		}
	}
}

type named struct{ d provider.Descriptor }

func (n named) Descriptor() provider.Descriptor  { return n.d }
func (named) Facts(provider.Call) provider.Facts { return nil }
func (named) Resolve(context.Context, provider.Call) (provider.Plan, error) {
	return provider.Plan{}, nil
}
func (named) Execute(context.Context, provider.Dispatch) (out provider.Outcome) { return out }

func TestRegistryRefusesMistakes(t *testing.T) {
	t.Parallel()
	good := func() provider.Descriptor {
		return provider.Descriptor{
			Name: "test.read", Title: "Read", Summary: "Reads.", Effect: provider.Read, Hint: provider.Unattended,
			Target: provider.NewSchema(target), Arguments: provider.NewSchema(target),
		}
	}
	for name, spoil := range map[string]func(*provider.Descriptor){
		"one word":         func(d *provider.Descriptor) { d.Name = "read" },
		"capital":          func(d *provider.Descriptor) { d.Name = "test.Read" },
		"long name":        func(d *provider.Descriptor) { d.Name = "test." + strings.Repeat("a", 124) },
		"no title":         func(d *provider.Descriptor) { d.Title = "" },
		"no summary":       func(d *provider.Descriptor) { d.Summary = "" },
		"no effect":        func(d *provider.Descriptor) { d.Effect = "" },
		"no hint":          func(d *provider.Descriptor) { d.Hint = "" },
		"no schema":        func(d *provider.Descriptor) { d.Arguments = nil },
		"blanked name":     func(d *provider.Descriptor) { d.PublicNames = map[string]string{"key": "map_key"} },
		"negative timeout": func(d *provider.Descriptor) { d.Timeout = -1 },
	} {
		d := good()
		spoil(&d)
		if _, err := provider.NewRegistry(named{d}); err == nil {
			t.Errorf("%s: must be refused", name)
		}
	}
	if _, err := provider.NewRegistry(named{good()}, named{good()}); err == nil {
		t.Error("a name given twice must be refused")
	}
	registry, err := provider.NewRegistry(named{good()})
	if err != nil {
		t.Fatal(err)
	}
	if _, d, ok := registry.Find("test.read"); !ok || d.Timeout != provider.DefaultTimeout || len(registry.Descriptors()) != 1 {
		t.Fatalf("%+v", d)
	}
	if _, _, ok := registry.Find("test"); ok {
		t.Fatal("a part of a name must not be found")
	}
}

func TestFactsAreSmall(t *testing.T) {
	t.Parallel()
	if err := (provider.Facts{"a": provider.Text("x"), "b": provider.Number(1), "c": provider.Flag(true), "d": provider.Texts{"x"}}).Check(); err != nil {
		t.Fatal(err)
	}
	for name, facts := range map[string]provider.Facts{
		"name": {"A": provider.Flag(true)}, "nil": {"a": nil}, "long": {"a": provider.Text(strings.Repeat("x", 501))},
		"many texts": {"a": make(provider.Texts, 65)}, "long among texts": {"a": provider.Texts{strings.Repeat("x", 501)}},
	} {
		if facts.Check() == nil {
			t.Errorf("%s: must be refused", name)
		}
	}
}
