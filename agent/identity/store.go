package identity

import (
	"context"
	"embed"
	"time"

	"countersign/agent/vault"
	"countersign/assertion"
	"countersign/internal/database"
	"countersign/internal/secret"
)

//go:embed migrations
var migrations embed.FS

// store keeps the signing keys. There is always at least one.
type store struct{ vault *vault.Vault }

// open makes the table, and the first key if there is none.
func (s store) open(ctx context.Context, now time.Time) error {
	if err := s.vault.Migrate(ctx, "identity", migrations); err != nil {
		return err
	}
	return s.insert(ctx, func(tx *database.Tx) (bool, time.Time, error) {
		var keys int
		err := tx.QueryRow("SELECT count(*) FROM signing_keys").Scan(&keys)
		return keys == 0, now, err
	})
}

// rotate adds a key that signs after the notice, and forgets those that are no longer published.
func (s store) rotate(ctx context.Context, now time.Time) error {
	return s.insert(ctx, func(tx *database.Tx) (bool, time.Time, error) {
		_, err := tx.Exec(`DELETE FROM signing_keys WHERE signs_from < (SELECT max(signs_from) FROM signing_keys WHERE signs_from <= ?)`,
			database.Millis(now.Add(-notice)))
		return true, now.Add(notice), err
	})
}

// insert adds a new key if decide says so, in the same transaction.
func (s store) insert(ctx context.Context, decide func(*database.Tx) (wanted bool, signsFrom time.Time, err error)) error {
	key, err := assertion.GenerateKey()
	if err != nil {
		return err
	}
	sealed, err := s.vault.Seal(place(key.ID()), []byte(key.Marshal().Reveal()))
	if err != nil {
		return err
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		wanted, signsFrom, err := decide(tx)
		if err != nil || !wanted {
			return err
		}
		_, err = tx.Exec("INSERT INTO signing_keys (id, signs_from, private_key) VALUES (?, ?, ?)",
			key.ID(), database.Millis(signsFrom), sealed)
		return err
	})
}

// all returns the keys in the order in which they sign.
func (s store) all(ctx context.Context) ([]signingKey, error) {
	var keys []signingKey
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		var id string
		var signsFrom int64
		var sealed, pkcs8 []byte
		if err := scan(&id, &signsFrom, &sealed); err != nil {
			return err
		}
		if err := s.vault.Unseal(place(id), sealed, &pkcs8); err != nil {
			return err
		}
		key, err := assertion.ParseKey(secret.New(string(pkcs8)))
		if err != nil {
			return err
		}
		keys = append(keys, signingKey{key: key, signsFrom: database.Time(signsFrom)})
		return nil
	}, "SELECT id, signs_from, private_key FROM signing_keys ORDER BY signs_from, id")
	return keys, err
}

func place(id string) vault.Place {
	return vault.Place{Table: "signing_keys", Row: id, Column: "private_key"}
}
