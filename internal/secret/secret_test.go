package secret_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"countersign/internal/secret"
)

func TestTextIsUnprintable(t *testing.T) {
	t.Parallel()
	const value = "mArKeR-4821"
	holder := struct{ Token secret.Text }{secret.New(value)}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+verb+"\n", holder.Token, holder)
	}
	fmt.Fprintln(&out, fmt.Errorf("using %v", holder.Token), &holder)
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "token", holder.Token, "holder", holder)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "token", holder.Token, "holder", holder)
	text, err := json.Marshal(holder)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(text)
	if strings.Contains(out.String(), value) || strings.Contains(out.String(), fmt.Sprintf("%x", value)) {
		t.Fatalf("printed: %s", out.String())
	}
	if holder.Token.Reveal() != value || !holder.Token.Equal(secret.New(value)) || holder.Token.Equal(secret.New("other")) {
		t.Fatal("the value itself is lost")
	}
}
