package registry_test

import (
	"strings"
	"testing"

	"countersign/company/registry"
	"countersign/poppy"
)

func TestTheModeDecidesWhoMayCome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		mode   registry.Mode
		status registry.Status
		want   bool
	}{
		{registry.Open, "", true},
		{registry.Open, registry.Known, true},
		{registry.Open, registry.Allowed, true},
		{registry.Open, registry.Blocked, false},
		{registry.Allowlist, "", false},
		{registry.Allowlist, registry.Known, false},
		{registry.Allowlist, registry.Allowed, true},
		{registry.Allowlist, registry.Blocked, false},
		{"", registry.Known, false},
	} {
		if got := c.mode.Admits(c.status); got != c.want {
			t.Errorf("mode %q, status %q: %v, want %v", c.mode, c.status, got, c.want)
		}
	}
}

func TestANameIsOneLineThatPeopleCanRead(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"Example Agent":             "Example Agent",
		"Ágent für Łódź":            "Ágent für Łódź",
		"two\nlines\x1b[31m":        "twolines[31m",
		"turned \u202eround":        "turned round",
		strings.Repeat("é", 70_000): strings.Repeat("é", 100),
	} {
		if got := (registry.Agent{Metadata: poppy.ClientMetadata{ClientName: name}}).Name(); got != want {
			t.Errorf("name %.20q: %.120q, want %.120q", name, got, want)
		}
	}
}
