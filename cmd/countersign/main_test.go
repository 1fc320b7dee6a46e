package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets the test binary be the command itself: for the scripts, and for the processes that a demo starts.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"countersign": main})
}

// TestScripts runs each script of testdata as a user would, with the real command in real processes.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			return nil
		},
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve": serve, "end": end, "freeport": freePort, "capture": capture,
		},
	})
}
