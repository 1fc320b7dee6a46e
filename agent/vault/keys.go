package vault

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"countersign/internal/strictjson"
)

const keyBytes = 32 // AES-256, and HMAC-SHA-256 for lookups

// keyring is the content of a key file. The last of its seal keys seals, all of them open.
type keyring struct {
	Lookup []byte    `json:"lookup"`
	Seal   []sealKey `json:"seal"`
}

type sealKey struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
}

// Rotate adds a new key to the key file. A vault that is opened afterwards seals with it and still reads what older keys
// sealed. The lookup key stays, since hashes made with another one would find nothing.
func Rotate(keyFile string) error {
	keys, err := readKeys(keyFile)
	if err != nil {
		return err
	}
	keys.Seal = append(keys.Seal, newSealKey())
	temporary, err := writeKeys(keyFile, keys)
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, keyFile); err != nil {
		return fmt.Errorf("replacing the key file: %w", errors.Join(err, os.Remove(temporary)))
	}
	return nil
}

func newSealKey() sealKey { return sealKey{ID: rand.Text()[:keyIDBytes], Key: randomKey()} }

func randomKey() []byte {
	key := make([]byte, keyBytes)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	return key
}

// createKeys makes a key file. When two processes start at once, one file is made and both read it.
func createKeys(keyFile string) (keyring, error) {
	temporary, err := writeKeys(keyFile, keyring{Lookup: randomKey(), Seal: []sealKey{newSealKey()}})
	if err != nil {
		return keyring{}, err
	}
	err = os.Link(temporary, keyFile) // unlike a rename, it never replaces a file that is there
	if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err = errors.Join(err, os.Remove(temporary)); err != nil {
		return keyring{}, fmt.Errorf("making the key file: %w", err)
	}
	return readKeys(keyFile)
}

// writeKeys writes a key file under a temporary name beside its place, readable by its owner only and synced to disk.
func writeKeys(keyFile string, keys keyring) (temporary string, err error) {
	data, err := strictjson.Marshal(keys)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(keyFile), ".keys-*") // made with mode 0600
	if err != nil {
		return "", fmt.Errorf("making the key file: %w", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return "", fmt.Errorf("making the key file: %w", errors.Join(err, os.Remove(file.Name())))
	}
	return file.Name(), nil
}

// maxKeyFileBytes is room for hundreds of keys.
const maxKeyFileBytes = 64 << 10

// readKeys reads a key file and refuses one that others can read.
func readKeys(keyFile string) (keyring, error) {
	file, err := os.Open(keyFile)
	if err != nil {
		return keyring{}, fmt.Errorf("opening the key file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return keyring{}, fmt.Errorf("opening the key file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return keyring{}, fmt.Errorf("the key file %s can be read by others (mode %04o): run chmod 600 %s", keyFile, mode, keyFile)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxKeyFileBytes))
	if err != nil {
		return keyring{}, fmt.Errorf("reading the key file: %w", err)
	}
	var keys keyring
	if err := strictjson.UnmarshalClosed(data, &keys); err != nil {
		return keyring{}, fmt.Errorf("the key file %s is damaged (%w): put back a copy of it", keyFile, err)
	}
	return keys, nil
}

// ciphers returns the keys ready for use, by ID, and which of them seals.
func (k keyring) ciphers() (current string, ciphers map[string]cipher.AEAD, err error) {
	if len(k.Lookup) != keyBytes || len(k.Seal) == 0 {
		return "", nil, errors.New("the key file has not all keys: put back a copy of it")
	}
	ciphers = make(map[string]cipher.AEAD, len(k.Seal))
	for _, key := range k.Seal {
		if len(key.ID) != keyIDBytes || len(key.Key) != keyBytes {
			return "", nil, errors.New("the key file has a key of the wrong length: put back a copy of it")
		}
		block, err := aes.NewCipher(key.Key)
		if err != nil {
			return "", nil, err
		}
		if ciphers[key.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return "", nil, err
		}
		current = key.ID
	}
	return current, ciphers, nil
}

// Hash returns the keyed hash under which something identifying is looked up: 64 hexadecimal characters. kind separates
// the hashes of one purpose from those of others.
func (v *Vault) Hash(kind string, parts ...string) string {
	mac := hmac.New(sha256.New, v.lookup)
	mac.Write(join(append([]string{kind}, parts...)...))
	return hex.EncodeToString(mac.Sum(nil))
}
