package assertion

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"time"

	"countersign/internal/jws"
	"countersign/internal/secret"
)

// lifetime of the assertions made here. It must outlast the way to the Company and a little difference of clocks.
const lifetime = time.Minute

// Signer makes a Personal Agent's assertions. Safe for concurrent use.
type Signer struct {
	clientID string
	signer   *jws.Signer
}

// NewSigner returns a Signer for a client_id, an https URL, and one of its published keys.
func NewSigner(clientID string, key *Key) (*Signer, error) {
	if !isHTTPS(clientID) {
		return nil, errors.New("a client_id must be an https URL")
	}
	signer, err := key.private.NamingSigner("JWT")
	if err != nil {
		return nil, err
	}
	return &Signer{clientID: clientID, signer: signer}, nil
}

// ClientAssertion authenticates the Personal Agent to a Company (protocol 4.1, RFC 7523 3). It is good for one request
// within a minute. The issuer is the Company's auth.issuer.
func (s *Signer) ClientAssertion(issuer string, now time.Time) (secret.Text, error) {
	return s.sign(s.clientID, issuer, now)
}

// SessionAssertion names the User whose Session is started or renewed (protocol 4.2). It is good for one request within
// a minute. The issuer is the Company's auth.issuer and userID the User's ID for it, 1 to 255 printable ASCII characters.
func (s *Signer) SessionAssertion(issuer, userID string, now time.Time) (secret.Text, error) {
	if !isUserID(userID) || userID == s.clientID {
		return secret.Text{}, errors.New("a User ID has 1 to 255 printable ASCII characters and is not the client_id")
	}
	return s.sign(userID, issuer, now)
}

func (s *Signer) sign(subject, issuer string, now time.Time) (secret.Text, error) {
	if !isHTTPS(issuer) {
		return secret.Text{}, errors.New("an issuer must be an https URL")
	}
	compact, err := s.signer.Sign(claims{
		Issuer:    s.clientID,
		Subject:   subject,
		Audience:  issuer,
		IssuedAt:  new(now.Unix()),
		ExpiresAt: new(now.Add(lifetime).Unix()),
		ID:        rand.Text(), // 130 random bits
	})
	if err != nil {
		return secret.Text{}, fmt.Errorf("making an assertion: %w", err)
	}
	return secret.New(compact), nil
}

func isHTTPS(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != ""
}
