// Package vault keeps a Personal Agent's state encrypted: whoever copies its file learns neither a secret nor which User
// is known at which Company (4.2).
//
// A [Vault] is a database whose rooms store two kinds of columns. What is only looked up, such as an issuer or a
// person, is stored as a keyed hash ([Vault.Hash]). Everything else that is secret or says something about a User is
// sealed ([Vault.Seal]) with AES-256-GCM and bound to its place, so that a value moved to another row is refused. Each
// room brings its own tables, as in every database of the project.
//
// The keys are in a file of their own, readable by its owner only. Without that file the vault is unreadable.
package vault

import (
	"context"
	"crypto/cipher"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"countersign/internal/database"
	"countersign/internal/strictjson"
)

//go:embed migrations
var migrations embed.FS

// Vault is an open vault. Its methods may be called concurrently.
type Vault struct {
	*database.DB

	lookup  []byte
	current string // the ID of the key that seals
	keys    map[string]cipher.AEAD
}

// Place says where a sealed value stands. A value opens only at the place it was sealed for.
type Place struct{ Table, Row, Column string }

// Open opens or creates the vault in the file path with the keys in keyFile, which is created together with it. A key
// file that others can read, or that is not the one of this vault, is refused with what to do. Close the vault when done.
func Open(ctx context.Context, path, keyFile string) (*Vault, error) {
	keys, err := openKeys(path, keyFile)
	if err != nil {
		return nil, err
	}
	v := &Vault{lookup: keys.Lookup}
	if v.current, v.keys, err = keys.ciphers(); err != nil {
		return nil, fmt.Errorf("reading %s: %w", keyFile, err)
	}
	if v.DB, err = database.Open(ctx, path); err != nil {
		return nil, err
	}
	if err := v.check(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the vault %s with the keys in %s: %w", path, keyFile, err), v.Close())
	}
	return v, nil
}

// openKeys reads the key file. It makes one only for a vault that does not exist yet, since a new key cannot open an old vault.
func openKeys(path, keyFile string) (keyring, error) {
	keys, err := readKeys(keyFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return keys, err
	}
	if _, err := os.Stat(path); err == nil {
		return keyring{}, fmt.Errorf("the vault %s is there but its key file %s is not: put the key file back, "+
			"or move the vault away to start with an empty one", path, keyFile)
	}
	return createKeys(keyFile)
}

// checked is what the check row of every vault holds.
const checked = "countersign vault"

// check refuses keys that are not those of this vault, before a room seals anything with them.
func (v *Vault) check(ctx context.Context) error {
	if err := v.Migrate(ctx, "vault", migrations); err != nil {
		return err
	}
	place := Place{"key_check", "1", "sealed"}
	fresh, err := v.Seal(place, checked)
	if err != nil {
		return err
	}
	err = v.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("INSERT INTO key_check (id, sealed) VALUES (1, ?) ON CONFLICT DO NOTHING", fresh)
		return err
	})
	if err != nil {
		return err
	}
	var sealed []byte
	if err := v.QueryRow(ctx, "SELECT sealed FROM key_check WHERE id = 1").Scan(&sealed); err != nil {
		return err
	}
	var text string
	return v.Unseal(place, sealed, &text)
}

// keyIDBytes is the length of the key ID that stands before each sealed value, so that values sealed with an older key
// still open.
const keyIDBytes = 4

var errUnreadable = errors.New("a value is not readable with these keys: the key file is another vault's, or the vault was changed from outside")

// Seal encrypts value, written as JSON, for its place. A [secret.Text] in value would be written as its placeholder, so
// rooms give plain strings.
func (v *Vault) Seal(place Place, value any) ([]byte, error) {
	plain, err := strictjson.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("sealing %s.%s: %w", place.Table, place.Column, err)
	}
	return v.keys[v.current].Seal([]byte(v.current), nil, plain, place.bytes()), nil //nolint:gosec // the cipher makes the nonce
}

// Unseal decrypts what [Vault.Seal] made for the same place into value.
func (v *Vault) Unseal(place Place, sealed []byte, value any) error {
	if len(sealed) < keyIDBytes {
		return errUnreadable
	}
	key, known := v.keys[string(sealed[:keyIDBytes])]
	if !known {
		return errUnreadable
	}
	plain, err := key.Open(nil, nil, sealed[keyIDBytes:], place.bytes())
	if err != nil {
		return errUnreadable
	}
	if err := strictjson.Unmarshal(plain, value); err != nil {
		return fmt.Errorf("unsealing %s.%s: %w", place.Table, place.Column, err)
	}
	return nil
}

// bytes is the additional data of the encryption.
func (p Place) bytes() []byte { return join(p.Table, p.Row, p.Column) }

// join writes each part behind its length, so that no two lists of parts give the same bytes.
func join(parts ...string) []byte {
	var data []byte
	for _, part := range parts {
		data = fmt.Appendf(data, "%d:%s", len(part), part)
	}
	return data
}
