package policy

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"

	"countersign/broker/provider"
)

// maxFile bounds a policy file: thousands of rules.
const maxFile = 1 << 20

// Load reads the policy file at path. A file with a fault is not loaded at all; the error lists every fault with file, line
// and what to do.
func Load(path string) (*Engine, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("loading the policy: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("loading the policy: %w", err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("loading the policy: %s has more than %d bytes", path, maxFile)
	}
	return Parse(path, text)
}

// place finds the line in an error of the parser, which has no type for it.
var place = regexp.MustCompile(`<input>:(\d+):\d+ ?(.*)`)

// Parse is [Load] for a text that is already read; name stands for the file in errors.
func Parse(name string, text []byte) (*Engine, error) {
	list, err := cedar.NewPolicyListFromBytes(name, text)
	if err != nil {
		line, detail := "1", err.Error()
		if found := place.FindStringSubmatch(detail); found != nil {
			line, detail = found[1], found[2]
		}
		return nil, fmt.Errorf("%s:%s: this is no Cedar (%s); look here and just above, where a bracket, quote or the ; after a rule may be missing", name, line, detail)
	}
	var faults []error
	rules := cedar.NewPolicySet()
	for _, policy := range list {
		fault := func(format string, args ...any) {
			faults = append(faults, fmt.Errorf("%s:%d: %s", name, policy.Position().Line, fmt.Sprintf(format, args...)))
		}
		id := string(policy.Annotations()["id"])
		switch {
		case !ruleID.MatchString(id):
			fault(`the rule has no usable name; write @id("a-name") above it, with letters, digits and . _ - only`)
		case !rules.Add(cedar.PolicyID(id), policy):
			fault("a rule above is named %q too; give each its own @id", id)
		}
		for _, problem := range problems((*ast.Policy)(policy.AST())) {
			fault("%s", problem)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Engine{rules}, nil
}

var ruleID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// problems finds words in a rule that mean nothing here. Cedar itself accepts them, and the rule would silently never match:
// the worst that can happen to one that forbids.
func problems(rule *ast.Policy) []string {
	var list []string
	add := func(problem string) {
		if problem != "" && !slices.Contains(list, problem) {
			list = append(list, problem)
		}
	}
	switch scope := rule.Principal.(type) {
	case ast.ScopeTypeEq:
		add(principal(scope.Entity))
	case ast.ScopeTypeIs:
		add(unknownType(scope.Type, clientType))
	case ast.ScopeTypeIn, ast.ScopeTypeIsIn:
		add(`clients are in no groups; write principal == Client::"name", or a rule for each client`)
	case ast.ScopeTypeAll:
	}
	switch scope := rule.Action.(type) {
	case ast.ScopeTypeEq:
		add(action(scope.Entity))
	case ast.ScopeTypeIn:
		add(action(scope.Entity))
	case ast.ScopeTypeInSet:
		for _, entity := range scope.Entities {
			add(action(entity))
		}
	case ast.ScopeTypeAll:
	}
	switch scope := rule.Resource.(type) {
	case ast.ScopeTypeEq:
		add(unknownType(scope.Entity.Type, operationType))
	case ast.ScopeTypeIn:
		add(unknownType(scope.Entity.Type, familyType, operationType))
	case ast.ScopeTypeIs:
		add(unknownType(scope.Type, operationType))
	case ast.ScopeTypeIsIn:
		add(unknownType(scope.Type, operationType))
		add(unknownType(scope.Entity.Type, familyType, operationType))
	case ast.ScopeTypeAll:
	}
	for _, condition := range rule.Conditions {
		ast.Inspect(ast.NewNode(condition.Body), func(node ast.IsNode) bool {
			switch n := node.(type) {
			case ast.NodeTypeAccess:
				add(attribute(n.StrOpNode))
			case ast.NodeTypeHas:
				add(attribute(n.StrOpNode))
			case ast.NodeTypeIs:
				add(unknownType(n.EntityType, clientType, operationType))
			case ast.NodeTypeIsIn:
				add(unknownType(n.EntityType, clientType, operationType))
			case ast.NodeTypeEquals:
				add(effect(n.Left, n.Right))
				add(effect(n.Right, n.Left))
			case ast.NodeTypeNotEquals:
				add(effect(n.Left, n.Right))
				add(effect(n.Right, n.Left))
			case ast.NodeValue:
				if entity, ok := n.Value.(cedar.EntityUID); ok && entity.Type == actionType {
					add(action(entity))
				} else if ok {
					add(unknownType(entity.Type, clientType, operationType, familyType))
				}
			}
			return true
		})
	}
	return list
}

func principal(entity cedar.EntityUID) string { return unknownType(entity.Type, clientType) }

func action(entity cedar.EntityUID) string {
	if entity.Type == actionType && (entity.ID == submit || entity.ID == runUnattended) {
		return ""
	}
	return fmt.Sprintf(`%s is no question that the broker asks; use Action::%q or Action::%q`, entity, submit, runUnattended)
}

func unknownType(have cedar.EntityType, want ...cedar.EntityType) string {
	if slices.Contains(want, have) {
		return ""
	}
	return fmt.Sprintf("there is nothing of type %q in this place; use %q", have, want)
}

// attribute checks what is read from principal, action and resource. The members of context are facts, which each provider
// names for itself.
func attribute(access ast.StrOpNode) string {
	of, ok := access.Arg.(ast.NodeTypeVariable)
	switch {
	case !ok || of.Name == "context":
		return ""
	case of.Name == "resource" && access.Value == effectAttribute:
		return ""
	case of.Name == "resource":
		return fmt.Sprintf("a resource has no %q; use resource.%s, or a fact such as context.%s", access.Value, effectAttribute, access.Value)
	default:
		return fmt.Sprintf("%s has no %q; compare it as a whole", of.Name, access.Value)
	}
}

// effect checks a text that resource.effect is compared with.
func effect(left, right ast.IsNode) string {
	access, ok := left.(ast.NodeTypeAccess)
	if !ok || access.Value != effectAttribute {
		return ""
	}
	if of, ok := access.Arg.(ast.NodeTypeVariable); !ok || of.Name != "resource" {
		return ""
	}
	value, ok := right.(ast.NodeValue)
	if !ok {
		return ""
	}
	known := []provider.Effect{provider.Read, provider.Keyed, provider.Change}
	if text, ok := value.Value.(cedar.String); ok && slices.Contains(known, provider.Effect(text)) {
		return ""
	}
	return fmt.Sprintf("resource.%s is one of %q, never %s", effectAttribute, known, value.Value.MarshalCedar())
}
