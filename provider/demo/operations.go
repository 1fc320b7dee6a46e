package demo

import (
	"context"
	"errors"
	"fmt"

	"countersign/broker/provider"
)

func echo() provider.Operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: "demo.echo", Title: "Echo a text", Summary: "Returns the text it is given. Changes nothing.",
			Effect: provider.Read, Hint: provider.Unattended,
			Target: provider.NewSchema(nothing), Arguments: provider.NewSchema(text),
		},
		summary: func(input) string { return "Return the text as it is." },
		execute: func(_ context.Context, _ string, in input) provider.Outcome {
			return provider.Succeeded(map[string]string{"text": in.Text})
		},
	}
}

func noteWrite(file *File) provider.Operation {
	return reconcilable{operation{
		descriptor: provider.Descriptor{
			Name: "demo.note.write", Title: "Write a note", Summary: "Adds a note to a notebook. Each execution adds one.",
			Effect: provider.Change, Hint: provider.Ask,
			Target: provider.NewSchema(notebook), Arguments: provider.NewSchema(text),
		},
		summary: func(in input) string { return fmt.Sprintf("Add one note to the notebook %q.", in.Notebook) },
		execute: func(_ context.Context, id string, in input) provider.Outcome {
			return add(file, id, "demo.note.write", in)
		},
	}, file}
}

// add appends an effect. When the file fails, a line may have been written or not.
func add(file *File, id, name string, in input) provider.Outcome {
	effect := Effect{OperationID: id, Operation: name, Notebook: in.Notebook, Text: in.Text, Value: in.Value}
	if err := file.Add(effect); err != nil {
		return provider.Unknown(err)
	}
	return provider.Succeeded(effect)
}

func noteList(file *File) provider.Operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: "demo.note.list", Title: "List notes", Summary: "Returns the notes of a notebook, oldest first.",
			Effect: provider.Read, Hint: provider.Unattended,
			Target: provider.NewSchema(notebook), Arguments: provider.NewSchema(nothing),
		},
		summary: func(in input) string { return fmt.Sprintf("List the notes of the notebook %q.", in.Notebook) },
		execute: func(_ context.Context, _ string, in input) provider.Outcome {
			notes := []string{}
			for _, effect := range file.All() {
				if effect.Operation == "demo.note.write" && effect.Notebook == in.Notebook {
					notes = append(notes, effect.Text)
				}
			}
			return provider.Succeeded(map[string][]string{"notes": notes})
		},
	}
}

func counterSet(file *File) provider.Operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: "demo.counter.set", Title: "Set a counter", Summary: "Sets the counter of a notebook. Safe to repeat: one operation sets it once.",
			Effect: provider.Keyed, Hint: provider.Ask,
			Target: provider.NewSchema(notebook),
			Arguments: provider.NewSchema(`{"type":"object","additionalProperties":false,"required":["value"],
				"properties":{"value":{"type":"integer","minimum":0,"maximum":1000000}}}`),
		},
		summary: func(in input) string {
			return fmt.Sprintf("Set the counter of the notebook %q to %d.", in.Notebook, in.Value)
		},
		execute: func(_ context.Context, id string, in input) provider.Outcome {
			switch effect, done, err := file.Find(id); {
			case err != nil:
				return provider.Unknown(err)
			case done:
				return provider.Succeeded(effect)
			}
			return add(file, id, "demo.counter.set", in)
		},
	}
}

func fail() provider.Operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: "demo.fail", Title: "Fail", Summary: "Is refused with the code and message it is given. Changes nothing.",
			Effect: provider.Change, Hint: provider.Ask,
			Target: provider.NewSchema(nothing),
			Arguments: provider.NewSchema(`{"type":"object","additionalProperties":false,"required":["code","message"],
				"properties":{"code":{"type":"string","maxLength":200},"message":{"type":"string","maxLength":100000}}}`),
		},
		summary: func(input) string { return "Be refused by the demo." },
		execute: func(_ context.Context, _ string, in input) provider.Outcome {
			return provider.Refused(in.Code, in.Message)
		},
	}
}

func hang(file *File) provider.Operation {
	return reconcilable{operation{
		descriptor: provider.Descriptor{
			Name: "demo.hang", Title: "Take a while", Summary: "Adds a note after the time it is given, if it is still wanted then.",
			Effect: provider.Change, Hint: provider.Ask,
			Target: provider.NewSchema(nothing), Arguments: provider.NewSchema(duration),
		},
		summary: func(in input) string { return fmt.Sprintf("Wait %d milliseconds, then add a note.", in.Milliseconds) },
		execute: func(ctx context.Context, id string, in input) provider.Outcome {
			if !wait(ctx, in.Milliseconds) {
				return provider.Unknown(ctx.Err())
			}
			return add(file, id, "demo.hang", in)
		},
	}, file}
}

// errVanished is what a caller sees of a system that does the work and never answers.
var errVanished = errors.New("no answer from the demo")

func vanish(file *File) provider.Operation {
	return reconcilable{vanishing("demo.vanish", "Act and not answer", "Adds a note but does not answer; whether it did can be looked up.", file), file}
}

func vanishForGood(file *File) provider.Operation {
	return vanishing("demo.vanish_for_good", "Act and never tell", "Adds a note but does not answer, and nobody can look up whether it did.", file)
}

func vanishing(name, title, summary string, file *File) operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: name, Title: title, Summary: summary, Effect: provider.Change, Hint: provider.Ask,
			Target: provider.NewSchema(nothing), Arguments: provider.NewSchema(duration),
		},
		summary: func(input) string { return "Add a note and give no answer." },
		execute: func(ctx context.Context, id string, in input) provider.Outcome {
			if outcome := add(file, id, name, in); outcome.Verdict != provider.VerdictSucceeded {
				return outcome
			}
			wait(ctx, in.Milliseconds)
			return provider.Unknown(errVanished)
		},
	}
}

// leaked returns an example of each kind of credential, none of them real. Its members have names that transcripts blank,
// names that they do not blank, and one that has a public name.
func leaked() map[string]any {
	return map[string]any{ //nolint:gosec // none of these is a credential
		"token":   "ghp_demodemodemodemodemodemodemodemodemo",
		"note":    "sent Authorization: Bearer demodemodemodemo to https://user:demodemo@api.outdoor.example/",
		"log":     []string{"eyJhbGciOiJub25lIn0.eyJkZW1vIjoxfQ.ZGVtbw", "password=demodemo", "-----BEGIN PRIVATE KEY-----\ndemodemo\n-----END PRIVATE KEY-----"},
		"key":     "color",
		"private": map[string]any{"client_secret": "demodemo"},
	}
}

func leak() provider.Operation {
	return operation{
		descriptor: provider.Descriptor{
			Name: "demo.leak", Title: "Leak credentials", Summary: "Answers with made-up credentials, in its result or in its error, to show that none arrives.",
			Effect: provider.Read, Hint: provider.Unattended,
			Target:      provider.NewSchema(nothing),
			Arguments:   provider.NewSchema(`{"type":"object","additionalProperties":false,"properties":{"fail":{"type":"boolean"}}}`),
			PublicNames: map[string]string{"key": "name"},
		},
		summary: func(input) string { return "Show what becomes of leaked credentials." },
		execute: func(_ context.Context, _ string, in input) provider.Outcome {
			if in.Fail {
				return provider.Refused("leaked", fmt.Sprintf("The demo said: %v\x00\x1b[31m", leaked()))
			}
			return provider.Succeeded(leaked())
		},
	}
}
