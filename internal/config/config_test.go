package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"countersign/internal/config"
)

type shop struct {
	Name    string          `toml:"name"`
	Timeout config.Duration `toml:"timeout"`
	Rules   []struct {
		When []string `toml:"when"`
		Deep struct {
			Value int `toml:"value"`
		} `toml:"deep"`
	} `toml:"rule"`
}

type document struct {
	State string `toml:"state"`
	Shops []shop `toml:"shop"`
}

func load(t *testing.T, text string) (document, *config.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var d document
	file, err := config.Load(path, &d)
	return d, file, err
}

func TestLoadNamesLineAndFix(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"unknown key, close to a known one": {"state = 'a'\n\n[[shop]]\nnmae = 'x'\n", []string{"shop.toml:4: there is no setting shop.nmae", "fix: write name"}},
		"unknown key, far from all":         {"colour = 'red'\n", []string{"shop.toml:1: there is no setting colour", "fix: remove the line"}},
		"two mistakes":                      {"stat = 'a'\nx = 1\n", []string{":1: there is no setting stat", "write state", ":2: there is no setting x"}},
		"not TOML":                          {"state = \n", []string{"shop.toml:1: "}},
		"wrong type":                        {"state = 5\n", []string{"shop.toml:1: "}},
		"not a duration":                    {"[[shop]]\ntimeout = '5 minutes'\n", []string{"shop.toml:2: ", `"15m"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := load(t, test.text)
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it", err, want)
				}
			}
		})
	}
}

func TestProblemFindsTheLineOfAField(t *testing.T) {
	t.Parallel()
	d, file, err := load(t, `state = "s.db"
[[shop]]
name = "one"
timeout = "90s"
[[shop.rule]]
when = ["a"]
[[shop.rule]]
[shop.rule.deep]
value = 1
[[shop]]
name = "two"
[[shop.rule]]
when = ["b"]
`)
	if err != nil {
		t.Fatal(err)
	}
	if time.Duration(d.Shops[0].Timeout) != 90*time.Second || len(d.Shops[0].Rules) != 2 {
		t.Fatalf("read %+v", d)
	}
	for field, line := range map[string]string{
		"state": ":1:", "shop[0].name": ":3:", "shop[0].rule[0].when": ":6:", "shop[0].rule[1].deep.value": ":9:",
		"shop[1].name": ":11:", "shop[1].rule[0].when": ":13:", "shop[1].timeout": ":10:",
	} {
		if got := file.Problem(field, "is wrong", "").Error(); !strings.Contains(got, "shop.toml"+line+" "+field+" is wrong") {
			t.Errorf("%s: %s, want line %s", field, got, line)
		}
	}
	if got := file.Problem("missing.altogether", "is needed", "add it").Error(); !strings.Contains(got, "shop.toml: missing.altogether is needed\n    fix: add it") {
		t.Error(got)
	}
	if got := file.Beside("x.db"); got != filepath.Join(filepath.Dir(file.Path), "x.db") {
		t.Error(got)
	}
}

func TestLoadOfNoFileSaysWhatToDo(t *testing.T) {
	t.Parallel()
	var d document
	if _, err := config.Load(filepath.Join(t.TempDir(), "none.toml"), &d); err == nil || !strings.Contains(err.Error(), "init command") {
		t.Fatal(err)
	}
}
