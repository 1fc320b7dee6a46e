package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/x/exp/ast"
)

// Unknown says which clients, operations and families the rules name that a broker with these clients and operations does not
// have, sorted. Such a rule never matches, so that a typing mistake in one that forbids would let everything pass. It is no
// fault of the file: a provider may be switched off.
func (e *Engine) Unknown(clients, operations []string) []string {
	known := make(map[cedar.EntityUID]bool)
	for _, id := range clients {
		known[cedar.NewEntityUID(clientType, cedar.String(id))] = true
	}
	for _, name := range operations {
		known[cedar.NewEntityUID(operationType, cedar.String(name))] = true
		for _, family := range families(name) {
			known[family] = true
		}
	}
	var unknown []string
	for id, policy := range e.rules.All() {
		for _, entity := range named((*ast.Policy)(policy.AST())) {
			if !known[entity] && entity.Type != actionType {
				unknown = append(unknown, fmt.Sprintf("rule %q names %s, which this broker does not have", id, strings.TrimSpace(entity.String())))
			}
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// named lists every entity that a rule names.
func named(rule *ast.Policy) []cedar.EntityUID {
	var entities []cedar.EntityUID
	if scope, ok := rule.Principal.(ast.ScopeTypeEq); ok {
		entities = append(entities, scope.Entity)
	}
	switch scope := rule.Resource.(type) {
	case ast.ScopeTypeEq:
		entities = append(entities, scope.Entity)
	case ast.ScopeTypeIn:
		entities = append(entities, scope.Entity)
	case ast.ScopeTypeIsIn:
		entities = append(entities, scope.Entity)
	}
	for _, condition := range rule.Conditions {
		ast.Inspect(ast.NewNode(condition.Body), func(node ast.IsNode) bool {
			if n, ok := node.(ast.NodeValue); ok {
				if entity, ok := n.Value.(cedar.EntityUID); ok {
					entities = append(entities, entity)
				}
			}
			return true
		})
	}
	return entities
}
