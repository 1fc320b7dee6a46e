package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"countersign/broker/approval"
	"countersign/broker/internal/wire"
	"countersign/broker/page"
	"countersign/internal/strictjson"
	"countersign/internal/web"
)

const (
	// maxDecision bounds the body of a decision, in bytes.
	maxDecision = 16 << 10
	// maxWait bounds how long a request for a list waits for a change.
	maxWait = 25 * time.Second
	// maxWaiting is how many requests of one operator may be held open at once.
	maxWaiting = 64
)

// list answers with a page of approvals; after its next change for who sends wait_seconds and, as If-None-Match, the tag of the
// page last seen; and with every change for who accepts server-sent events.
func (s *server) list(w http.ResponseWriter, r *http.Request, operatorID string) error {
	query, err := wire.ReadQuery(r, "state", "limit", "cursor", "wait_seconds")
	if err != nil {
		return err
	}
	limit, err := query.Int("limit", 0, 1)
	if err != nil {
		return err
	}
	wait, err := query.Seconds("wait_seconds", 0, maxWait)
	if err != nil {
		return err
	}
	leave, err := s.waiting.Enter(operatorID)
	if err != nil {
		return err
	}
	defer leave()
	l := listing{approval.Filter{State: approval.State(query["state"])}, int(min(limit, page.MaxLimit)), query["cursor"]}
	if wire.WantsStream(r) {
		return s.stream(w, r, l)
	}
	seen := r.Header.Get("If-None-Match")
	tag, body, err := s.next(r.Context(), l, seen, wait)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", tag)
	if tag == seen {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return web.WriteJSON(w, http.StatusOK, strictjson.Raw(body))
}

// listing is the part of the list that was asked for.
type listing struct {
	filter approval.Filter
	limit  int
	cursor string
}

// stream sends the page at once, unless its reader has seen it, and again whenever it has changed.
func (s *server) stream(w http.ResponseWriter, r *http.Request, l listing) error {
	seen := r.Header.Get("Last-Event-ID")
	tag, body, err := s.read(r.Context(), l)
	if err != nil {
		return err
	}
	stream := wire.OpenStream(w)
	defer stream.Close()
	stopping := web.Stopping(r.Context())
	for {
		if tag == seen {
			if !stream.Beat() {
				return nil
			}
		} else if !stream.Send(tag, "approvals", body) {
			return nil
		}
		seen = tag
		if tag, body, err = s.next(r.Context(), l, seen, wire.Heartbeat); err != nil {
			return err
		}
		select {
		case <-stopping:
			return nil
		default:
		}
	}
}

// next reads the page as soon as its tag is not the one seen, and as it is when the time is over or the server stops.
func (s *server) next(ctx context.Context, l listing, seen string, timeout time.Duration) (tag string, body []byte, err error) {
	changed, cancel := s.Approvals.Watch()
	defer cancel()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		tag, body, err = s.read(ctx, l)
		if err != nil || tag != seen {
			return tag, body, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return tag, body, nil
		case <-web.Stopping(ctx):
			return tag, body, nil
		case <-ctx.Done():
			return "", nil, ctx.Err()
		}
	}
}

// read reads the page, and a tag that is another one when the page is.
func (s *server) read(ctx context.Context, l listing) (tag string, body []byte, err error) {
	found, err := s.Approvals.List(ctx, l.filter, l.limit, l.cursor)
	if err != nil {
		return "", nil, err
	}
	body, err = strictjson.MarshalCanonical(NewPageDocument(found))
	if err != nil {
		return "", nil, err
	}
	return `"` + strictjson.Digest(body) + `"`, body, nil
}

// get answers with an approval and the exact terms of its operation.
func (s *server) get(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	found, err := s.Approvals.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	op, err := s.Operations.Lookup(r.Context(), found.OperationID)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, DetailDocument{NewDocument(found), Terms{op.Effect, op.Target, op.Arguments, op.Rulings}})
}

// decide carries out a decision of the authenticated operator.
func (s *server) decide(carryOut func(context.Context, approval.Decision) (approval.Approval, bool, error)) func(http.ResponseWriter, *http.Request, string) error {
	return func(w http.ResponseWriter, r *http.Request, operatorID string) error {
		if _, err := wire.ReadQuery(r); err != nil {
			return err
		}
		body, err := web.ReadJSON(w, r, maxDecision)
		if err != nil {
			return err
		}
		var sent decisionDocument
		if err := strictjson.UnmarshalClosed(body, &sent); err != nil {
			return wire.Invalid("The body is not a decision: " + err.Error() + ".")
		}
		decided, replayed, err := carryOut(r.Context(), approval.Decision{
			ApprovalID:       r.PathValue("id"),
			ExpectedRevision: sent.ExpectedRevision,
			Key:              sent.Key,
			OperatorID:       operatorID,
			Note:             sent.Note,
		})
		if err != nil {
			return s.withCurrent(r, err)
		}
		if replayed {
			w.Header().Set(wire.ReplayedHeader, "true")
		}
		return web.WriteJSON(w, http.StatusOK, NewDocument(decided))
	}
}

// withCurrent adds to a conflict the approval as it is now, so that the operator can look again before deciding again.
func (s *server) withCurrent(r *http.Request, err error) error {
	refused, ok := errors.AsType[*approval.Error](err)
	if !ok || refused.Code != approval.RevisionConflict {
		return err
	}
	current, err := s.Approvals.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	document, err := strictjson.Marshal(NewDocument(current))
	if err != nil {
		return err
	}
	return wire.Refuse(statuses[refused.Code], wire.Fault{Code: string(refused.Code), Message: refused.Message, Current: document})
}
