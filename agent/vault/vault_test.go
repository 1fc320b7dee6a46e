package vault_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"countersign/agent/vault"
	"countersign/internal/database"
)

type files struct{ vault, keys string }

func places(t *testing.T) files {
	t.Helper()
	dir := t.TempDir()
	return files{vault: filepath.Join(dir, "agent.db"), keys: filepath.Join(dir, "agent.keys")}
}

func open(t *testing.T, f files) *vault.Vault {
	t.Helper()
	v, err := vault.Open(t.Context(), f.vault, f.keys)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() }) // closed twice where a test reopens it
	return v
}

var place = vault.Place{Table: "users", Row: "1", Column: "content"}

type content struct{ Name string }

func TestASealedValueOpensOnlyAtItsPlace(t *testing.T) {
	t.Parallel()
	v := open(t, places(t))
	sealed, err := v.Seal(place, content{"marker"})
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("marker")) {
		t.Error("the sealed value shows what it holds")
	}
	var got content
	if err := v.Unseal(place, sealed, &got); err != nil || got.Name != "marker" {
		t.Fatalf("opened %v, %v", got, err)
	}
	again, err := v.Seal(place, content{"marker"})
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("sealing twice gave the same bytes (%v)", err)
	}

	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, c := range map[string]struct {
		place  vault.Place
		sealed []byte
	}{
		"other table":            {vault.Place{Table: "tokens", Row: "1", Column: "content"}, sealed},
		"other row":              {vault.Place{Table: "users", Row: "2", Column: "content"}, sealed},
		"other column":           {vault.Place{Table: "users", Row: "1", Column: "other"}, sealed},
		"parts shifted":          {vault.Place{Table: "users1", Row: "", Column: "content"}, sealed},
		"a bit changed":          {place, changed},
		"cut":                    {place, sealed[:len(sealed)-1]},
		"empty":                  {place, nil},
		"only the key's ID":      {place, sealed[:4]},
		"a key that is not here": {place, append([]byte("xxxx"), sealed[4:]...)},
	} {
		var got content
		if err := v.Unseal(c.place, c.sealed, &got); err == nil || got.Name != "" {
			t.Errorf("%s: opened %v, %v", name, got, err)
		}
	}
}

func TestHashesDependOnTheVaultTheKindAndEveryPart(t *testing.T) {
	t.Parallel()
	v, other := open(t, places(t)), open(t, places(t))
	hash := v.Hash("user", "https://auth.outdoor.example", "person")
	if hash != v.Hash("user", "https://auth.outdoor.example", "person") {
		t.Error("the same parts gave two hashes")
	}
	for name, got := range map[string]string{
		"other vault":   other.Hash("user", "https://auth.outdoor.example", "person"),
		"other kind":    v.Hash("session", "https://auth.outdoor.example", "person"),
		"other person":  v.Hash("user", "https://auth.outdoor.example", "person2"),
		"parts shifted": v.Hash("user", "https://auth.outdoor.exampl", "eperson"),
		"parts joined":  v.Hash("user", "https://auth.outdoor.exampleperson"),
	} {
		if got == hash {
			t.Errorf("%s: same hash", name)
		}
	}
}

func TestAVaultReopensWithItsKeys(t *testing.T) {
	t.Parallel()
	f := places(t)
	v := open(t, f)
	sealed, err := v.Seal(place, content{"kept"})
	if err != nil {
		t.Fatal(err)
	}
	hash := v.Hash("user", "person")
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	v = open(t, f)
	var got content
	if err := v.Unseal(place, sealed, &got); err != nil || got.Name != "kept" || v.Hash("user", "person") != hash {
		t.Errorf("reopened: %v, %v", got, err)
	}
}

func TestRotationKeepsOldValuesReadable(t *testing.T) {
	t.Parallel()
	f := places(t)
	v := open(t, f)
	old, err := v.Seal(place, content{"old"})
	if err != nil {
		t.Fatal(err)
	}
	hash := v.Hash("user", "person")
	_ = v.Close()
	if err := vault.Rotate(f.keys); err != nil {
		t.Fatal(err)
	}
	v = open(t, f)
	fresh, err := v.Seal(place, content{"new"})
	if err != nil || bytes.Equal(fresh[:4], old[:4]) {
		t.Errorf("sealed with the key %q again (%v)", fresh[:4], err)
	}
	for want, sealed := range map[string][]byte{"old": old, "new": fresh} {
		var got content
		if err := v.Unseal(place, sealed, &got); err != nil || got.Name != want {
			t.Errorf("%s: %v, %v", want, got, err)
		}
	}
	if v.Hash("user", "person") != hash {
		t.Error("rotation changed the lookup hashes")
	}
}

func TestKeysThatDoNotFitAreRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, f files)
		says  string
	}{
		"readable by the group": {func(t *testing.T, f files) { chmod(t, f.keys, 0o640) }, "chmod 600"},
		"readable by all":       {func(t *testing.T, f files) { chmod(t, f.keys, 0o604) }, "chmod 600"},
		"missing":               {func(t *testing.T, f files) { remove(t, f.keys) }, "put the key file back"},
		"of another vault": {func(t *testing.T, f files) {
			other := places(t)
			_ = open(t, other).Close()
			remove(t, f.keys)
			if err := os.Rename(other.keys, f.keys); err != nil {
				t.Fatal(err)
			}
		}, "another vault's"},
		"damaged":       {func(t *testing.T, f files) { write(t, f.keys, `{"lookup":`) }, "put back a copy"},
		"without keys":  {func(t *testing.T, f files) { write(t, f.keys, `{"lookup":"AAAA","seal":[]}`) }, "put back a copy"},
		"unknown field": {func(t *testing.T, f files) { write(t, f.keys, `{"lookup":"","seal":[],"more":1}`) }, "put back a copy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := places(t)
			_ = open(t, f).Close()
			c.spoil(t, f)
			v, err := vault.Open(t.Context(), f.vault, f.keys)
			if err == nil || v != nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, %v; want an error that says %q", v, err, c.says)
			}
		})
	}
}

func TestAMissingKeyFileIsNotReplacedByOneThatCannotOpenTheVault(t *testing.T) {
	t.Parallel()
	f := places(t)
	_ = open(t, f).Close()
	remove(t, f.keys)
	if _, err := vault.Open(t.Context(), f.vault, f.keys); err == nil {
		t.Fatal("opened without its keys")
	}
	if _, err := os.Stat(f.keys); !os.IsNotExist(err) {
		t.Errorf("a key file was made (%v)", err)
	}
}

func TestFilesAreForTheirOwnerOnly(t *testing.T) {
	t.Parallel()
	f := places(t)
	open(t, f)
	for _, path := range []string{f.vault, f.keys} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestProcessesThatStartAtOnceShareOneKeyFile(t *testing.T) {
	t.Parallel()
	f := places(t)
	hashes := make([]string, 8)
	var group sync.WaitGroup
	for i := range hashes {
		group.Go(func() {
			own := files{vault: f.vault + string(rune('a'+i)), keys: f.keys} // only the key file is contended here
			v, err := vault.Open(t.Context(), own.vault, own.keys)
			if err != nil {
				t.Error(err)
				return
			}
			hashes[i] = v.Hash("user", "person")
			_ = v.Close()
		})
	}
	group.Wait()
	for _, hash := range hashes {
		if hash != hashes[0] {
			t.Fatal("two key files were made")
		}
	}
	rest, err := filepath.Glob(filepath.Join(filepath.Dir(f.keys), ".keys-*"))
	if err != nil || len(rest) != 0 {
		t.Errorf("temporary files are left: %v, %v", rest, err)
	}
}

func TestRoomsKeepTheirOwnTables(t *testing.T) {
	t.Parallel()
	v := open(t, places(t))
	if err := v.Migrate(t.Context(), "test", os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	err := v.Write(t.Context(), func(tx *database.Tx) error {
		_, err := tx.Exec("INSERT INTO note (id) VALUES (?)", v.Hash("note", "1"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
