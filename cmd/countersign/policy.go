package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"countersign/broker/policy"
	"countersign/broker/provider"
	"countersign/internal/strictjson"
)

func newPolicy(t *terminal) *cobra.Command {
	var path string
	cmd := group("policy", "Check a broker's policy, and see what it would decide", "",
		newPolicyCheck(t, &path), newPolicyExplain(t, &path))
	configFlag(cmd, &path, brokerFile)
	cmd.PersistentFlags().BoolVar(&t.json, "json", false, "print data as JSON")
	return cmd
}

// policyPath is the policy file of a broker's configuration.
func policyPath(path string) (string, error) {
	b := brokerConfig{Policy: policyFile}
	f, err := loadConfig(path, brokerFile, &b)
	if err != nil {
		return "", err
	}
	return f.Beside(b.Policy), nil
}

func newPolicyCheck(t *terminal, path *string) *cobra.Command {
	return &cobra.Command{
		Use: "check [FILE]", Short: "Check a policy file without loading it into a broker", Args: optional("FILE"),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			var file string
			if len(args) == 1 {
				file = args[0]
			} else if file, err = policyPath(*path); err != nil {
				return err
			}
			engine, err := policy.Load(file)
			if err != nil {
				return usageError{err}
			}
			unknown, err := unknownNames(*path, engine)
			if err != nil {
				return err
			}
			if t.json {
				return t.writeJSON(map[string]any{"file": file, "ok": true, "warnings": append([]string{}, unknown...)})
			}
			t.say("%s is sound. A running broker takes it up when it is started again.", file)
			for _, warning := range unknown {
				t.say("%s %s: it never matches", bad.Render("warning:"), plain(warning))
			}
			return nil
		},
	}
}

// unknownNames are the warnings about an engine's rules, by the clients of the broker at path, if there is one, and by every
// operation that a broker can offer.
func unknownNames(path string, engine *policy.Engine) ([]string, error) {
	var b brokerConfig
	if _, err := loadConfig(path, brokerFile, &b); err != nil {
		return nil, nil //nolint:nilerr // a policy file can be checked alone; then its clients are not known
	}
	offered, err := catalogue()
	if err != nil {
		return nil, err
	}
	var clients []string
	for _, c := range b.Clients {
		clients = append(clients, c.ID)
	}
	return engine.Unknown(clients, names(offered)), nil
}

func newPolicyExplain(t *terminal, path *string) *cobra.Command {
	var clientID, target, argumentsJSON string
	cmd := &cobra.Command{
		Use: "explain OPERATION", Short: "Say what the policy would decide about an operation, and which rules would", Args: arguments("OPERATION"),
		Example: `  countersign policy explain company.operation.confirm --client assistant --target-json '{"company":"outdoor.example","operation":"op_1"}'`,
		RunE: func(_ *cobra.Command, args []string) error {
			file, err := policyPath(*path)
			if err != nil {
				return err
			}
			engine, err := policy.Load(file)
			if err != nil {
				return usageError{err}
			}
			offered, err := catalogue()
			if err != nil {
				return err
			}
			op, descriptor, found := offered.Find(args[0])
			if !found {
				return usage(fmt.Sprintf("there is no operation %s\nthere are: %s", plain(args[0]), strings.Join(names(offered), ", ")))
			}
			canonicalTarget, err := provider.Canonical(strictjson.Raw(target))
			if err != nil {
				return usage("--target-json " + err.Error())
			}
			canonicalArguments, err := provider.Canonical(strictjson.Raw(argumentsJSON))
			if err != nil {
				return usage("--arguments-json " + err.Error())
			}
			facts := op.Facts(provider.Call{ClientID: clientID, Operation: descriptor.Name, Target: canonicalTarget, Arguments: canonicalArguments})
			answer := engine.Explain(policy.Request{ClientID: clientID, Operation: descriptor.Name, Effect: descriptor.Effect, Facts: facts})
			if t.json {
				return t.writeJSON(map[string]any{"submit": decisionJSON(answer.Submit), "run_unattended": decisionJSON(answer.RunUnattended)})
			}
			t.say("%s by %s, effect %s", bold.Render(descriptor.Name), plain(clientID), descriptor.Effect)
			for name, fact := range facts {
				t.say("  context.%s = %v", name, fact)
			}
			printDecision(t, "May it be submitted?         ", answer.Submit)
			printDecision(t, "May it run without a person? ", answer.RunUnattended)
			return nil
		},
	}
	cmd.Flags().StringVar(&clientID, "client", "assistant", "the client that would submit it")
	cmd.Flags().StringVar(&target, "target-json", "{}", "its target, a JSON object")
	cmd.Flags().StringVar(&argumentsJSON, "arguments-json", "{}", "its arguments, a JSON object")
	return cmd
}

func decisionJSON(d policy.Decision) map[string]any {
	return map[string]any{"allowed": d.Allowed, "rules": append([]string{}, d.Rules...), "faults": append([]string{}, d.Faults...)}
}

func printDecision(t *terminal, question string, d policy.Decision) {
	answer := bad.Render("no")
	if d.Allowed {
		answer = good.Render("yes")
	}
	why := "no rule permits it"
	if len(d.Rules) > 0 {
		why = "by " + strings.Join(d.Rules, ", ")
	}
	t.say("  %s %s, %s", question, answer, plain(why))
	for _, fault := range d.Faults {
		t.say("    %s", bad.Render(plain(fault)))
	}
}
