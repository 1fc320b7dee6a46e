package operation

import (
	"cmp"
	"context"
	"embed"
	"sync"
	"time"

	"countersign/agent/session"
	"countersign/agent/vault"
	"countersign/internal/database"
	"countersign/poppy"
)

//go:embed migrations
var migrations embed.FS

// record is an operation that is not final, as it was last seen.
type record struct {
	operation poppy.Operation
	origin    string    // what led to it; "" if not known, which leaves the one that is kept
	readAgain time.Time // not before
	confirmed bool      // a confirmation was sent and not refused; set by mark only
}

// owner is whose operations they are: the User's at the Company, or a private Session's.
type owner struct{ issuer, person, privateSession string }

func ownerOf(in *session.Session) owner {
	if in.Private() {
		return owner{issuer: in.Company.Issuer, privateSession: in.ID()}
	}
	return owner{issuer: in.Company.Issuer, person: in.Person()}
}

// book keeps the records of owners.
type book interface {
	// put adds a record or replaces what it says of the operation.
	put(ctx context.Context, of owner, r record) error
	// mark notes whether a confirmation may have arrived.
	mark(ctx context.Context, of owner, id string, confirmed bool) error
	get(ctx context.Context, of owner, id string) (r record, found bool, err error)
	byOrigin(ctx context.Context, of owner, origin string) (r record, found bool, err error)
	list(ctx context.Context, of owner) ([]record, error)
	delete(ctx context.Context, of owner, id string) error
}

var (
	_ book = (*store)(nil)
	_ book = (*memory)(nil)
)

// store keeps records in the vault.
type store struct{ vault *vault.Vault }

type kept struct {
	Operation poppy.Operation `json:"operation"`
	ReadAgain int64           `json:"read_again"`
}

func (s *store) open(ctx context.Context) error { return s.vault.Migrate(ctx, "operation", migrations) }

func (s *store) ownerRow(of owner) string { return s.vault.Hash("operations", of.issuer, of.person) }

func (s *store) row(of owner, id string) string {
	return s.vault.Hash("operation", of.issuer, of.person, id)
}

func (s *store) originRow(of owner, origin string) string {
	if origin == "" {
		return ""
	}
	return s.vault.Hash("origin", of.issuer, of.person, origin)
}

func place(row string) vault.Place {
	return vault.Place{Table: "operations", Row: row, Column: "content"}
}

func (s *store) put(ctx context.Context, of owner, r record) error {
	row := s.row(of, r.operation.OperationID)
	content, err := s.vault.Seal(place(row), kept{Operation: r.operation, ReadAgain: database.Millis(r.readAgain)})
	if err != nil {
		return err
	}
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec(`INSERT INTO operations (id, owner, origin, content) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
			SET content = excluded.content, origin = CASE WHEN excluded.origin = '' THEN origin ELSE excluded.origin END`,
			row, s.ownerRow(of), s.originRow(of, r.origin), content)
		return err
	})
}

func (s *store) mark(ctx context.Context, of owner, id string, confirmed bool) error {
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("UPDATE operations SET confirmed = ? WHERE id = ?", confirmed, s.row(of, id))
		return err
	})
}

func (s *store) get(ctx context.Context, of owner, id string) (record, bool, error) {
	return s.first(ctx, "SELECT id, content, confirmed FROM operations WHERE id = ?", s.row(of, id))
}

func (s *store) byOrigin(ctx context.Context, of owner, origin string) (record, bool, error) {
	return s.first(ctx, "SELECT id, content, confirmed FROM operations WHERE origin = ?", s.originRow(of, origin))
}

func (s *store) list(ctx context.Context, of owner) ([]record, error) {
	return s.query(ctx, "SELECT id, content, confirmed FROM operations WHERE owner = ? ORDER BY id", s.ownerRow(of))
}

func (s *store) first(ctx context.Context, statement, argument string) (record, bool, error) {
	records, err := s.query(ctx, statement, argument)
	if err != nil || len(records) == 0 {
		return record{}, false, err
	}
	return records[0], true, nil
}

func (s *store) query(ctx context.Context, statement, argument string) ([]record, error) {
	var records []record
	err := s.vault.Query(ctx, func(scan func(...any) error) error {
		var row string
		var sealed []byte
		var confirmed bool
		if err := scan(&row, &sealed, &confirmed); err != nil {
			return err
		}
		var k kept
		if err := s.vault.Unseal(place(row), sealed, &k); err != nil {
			return err
		}
		records = append(records, record{operation: k.Operation, readAgain: database.Time(k.ReadAgain), confirmed: confirmed})
		return nil
	}, statement, argument)
	return records, err
}

func (s *store) delete(ctx context.Context, of owner, id string) error {
	return s.vault.Write(ctx, func(tx *database.Tx) error {
		_, err := tx.Exec("DELETE FROM operations WHERE id = ?", s.row(of, id))
		return err
	})
}

// memory keeps the records of private Sessions, of which nothing goes into the vault (4.2).
type memory struct {
	mutex   sync.Mutex
	records map[owner]map[string]record // by operation ID
}

func (m *memory) put(_ context.Context, of owner, r record) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.records == nil {
		m.records = make(map[owner]map[string]record)
	}
	if m.records[of] == nil {
		m.records[of] = make(map[string]record)
	}
	id := r.operation.OperationID
	known := m.records[of][id]
	r.origin, r.confirmed = cmp.Or(r.origin, known.origin), known.confirmed
	m.records[of][id] = r
	return nil
}

func (m *memory) mark(_ context.Context, of owner, id string, confirmed bool) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if r, found := m.records[of][id]; found {
		r.confirmed = confirmed
		m.records[of][id] = r
	}
	return nil
}

func (m *memory) get(_ context.Context, of owner, id string) (record, bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	r, found := m.records[of][id]
	return r, found, nil
}

func (m *memory) byOrigin(_ context.Context, of owner, origin string) (record, bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, r := range m.records[of] {
		if r.origin == origin {
			return r, true, nil
		}
	}
	return record{}, false, nil
}

func (m *memory) list(_ context.Context, of owner) ([]record, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	var records []record
	for _, r := range m.records[of] {
		records = append(records, r)
	}
	return records, nil
}

func (m *memory) delete(_ context.Context, of owner, id string) error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.records[of], id)
	if len(m.records[of]) == 0 {
		delete(m.records, of)
	}
	return nil
}
