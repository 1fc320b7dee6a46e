package company_test

import (
	"errors"
	"testing"
	"time"

	"countersign/company"
)

func TestAConfigurationWithoutMistakes(t *testing.T) {
	t.Parallel()
	if err := outdoor().Validate(); err != nil {
		t.Error(err)
	}
	if err := hosted("shop-a").Validate(); err != nil {
		t.Error(err)
	}
}

func TestEveryMistakeIsFoundAtItsField(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*company.Config){
		"issuer":                         func(c *company.Config) { c.Issuer = "https://auth.outdoor.example/?tenant=1" },
		"domains":                        func(c *company.Config) { c.Domains = nil },
		"domains[0].host":                func(c *company.Config) { c.Domains[0].Host = "https://outdoor.example" },
		"domains[1].name":                func(c *company.Config) { c.Domains[1].Name = " " },
		"domains[0].aliases[0]":          func(c *company.Config) { c.Domains[0].Aliases[0] = "outdoor.example" },
		"domains[0].apis[0].type":        func(c *company.Config) { c.Domains[0].APIs[0].Type = "graphql" }, // P-6-01
		"domains[0].apis[0].url":         func(c *company.Config) { c.Domains[0].APIs[0].URL = "http://api.outdoor.example/openapi.json" },
		"domains[0].apis[2].resource":    func(c *company.Config) { c.Domains[0].APIs[2].Resource = paymentsURL },
		"domains[0].apis[0].description": func(c *company.Config) { c.Domains[0].APIs[0].Description = "" },
		"domains[0].apis[0].bearer_only": func(c *company.Config) { c.Domains[0].APIs[0].BearerOnly = true }, // P-4.3-08
		"token_endpoint":                 func(c *company.Config) { c.TokenEndpoint = "https://auth.outdoor.example/token?x=1" },
		"revocation_endpoint":            func(c *company.Config) { c.RevocationEndpoint = "https://auth.outdoor.example/{id}" },
		"conversations.url":              func(c *company.Config) { c.Conversations.URL = "https://api.outdoor.example/poppy/" },
		"conversations.resource":         func(c *company.Config) { c.Conversations = company.Endpoint{Resource: "https://api.outdoor.example"} },
		"operations.url":                 func(c *company.Config) { c.Operations.URL = "https://api.outdoor.example" },
		"scopes[0].name":                 func(c *company.Config) { c.Scopes[0].Name = "poppy:all" }, // P-4.4-13
		"scopes[1].description":          func(c *company.Config) { c.Scopes[1].Description = "Everything" },
		"resources[0]":                   func(c *company.Config) { c.Resources = []string{"payments"} },
		"domains[0].apis[3].url":         func(c *company.Config) { c.Domains[0].APIs[3].URL = mcpURL }, // P-4.3-49
		"document_max_age":               func(c *company.Config) { c.DocumentMaxAge = time.Millisecond },
		"proof.algorithms[1]":            func(c *company.Config) { c.Proof.Algorithms = []string{"ES256", "HS256"} }, // P-4.3-27
		"proof.algorithms":               func(c *company.Config) { c.Proof.Algorithms = []string{"RS256"} },
		"proof.window":                   func(c *company.Config) { c.Proof.Window = time.Hour },
		"proof.nonces":                   func(c *company.Config) { c.Proof.Nonces = "on" },
		"proof.nonce_lifetime":           func(c *company.Config) { c.Proof.NonceLifetime = time.Millisecond },
		"token_lifetime":                 func(c *company.Config) { c.TokenLifetime = 1500 * time.Millisecond },
		"session_lifetime":               func(c *company.Config) { c.SessionLifetime = time.Minute },
		"agents.mode":                    func(c *company.Config) { c.Agents.Mode = "closed" },
		"limits.cached_agents":           func(c *company.Config) { c.Limits.CachedAgents = -1 },
	} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			config := outdoor()
			change(&config)
			mistakes, ok := errors.AsType[company.Mistakes](config.Validate())
			if !ok || len(mistakes) != 1 {
				t.Fatalf("mistakes:\n%v\nwant one", config.Validate())
			}
			if mistakes[0].Field != field || mistakes[0].What == "" || mistakes[0].Fix == "" {
				t.Errorf("mistake %+v", mistakes[0])
			}
		})
	}
}

func TestTheRoomsOfAConfigurationAreRequired(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]company.Options{
		"no Clerk":     {Performer: silent{}},
		"no Performer": {Clerk: silent{}},
	} {
		if _, err := company.New(t.Context(), outdoor(), options); err == nil {
			t.Errorf("%s: a Company was made", name)
		}
	}
}
