package agentapi

import (
	"net/http"
	"net/url"
	"strconv"

	"countersign/broker/internal/wire"
	"countersign/broker/operation"
	"countersign/broker/page"
	"countersign/internal/strictjson"
	"countersign/internal/web"
)

const (
	// maxSubmission bounds a submitted request, in bytes: what target and arguments may have, and room for escapes.
	maxSubmission = 2 << 20
	// maxWaiting is how many requests of one client may be held open at once.
	maxWaiting = 64
)

func (s *server) discover(w http.ResponseWriter, r *http.Request, clientID string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, discoveryDocument{
		API:            ContractName,
		ContractDigest: ContractDigest(),
		ContractPath:   contractPath,
		Build:          s.Build,
		Operations:     describe(s.Offered(clientID)),
	})
}

func (s *server) contract(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, Contract())
}

func (s *server) submit(w http.ResponseWriter, r *http.Request, clientID string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	body, err := web.ReadJSON(w, r, maxSubmission)
	if err != nil {
		return err
	}
	var submitted submission
	if err := strictjson.UnmarshalClosed(body, &submitted); err != nil {
		return wire.Invalid("The body is not a submission: " + err.Error() + ".")
	}
	op, replayed, err := s.Operations.Submit(r.Context(), clientID, submitted.request())
	if err != nil {
		return err
	}
	status := http.StatusAccepted
	if replayed || op.State.Terminal() {
		status = http.StatusOK
	}
	if replayed {
		w.Header().Set(wire.ReplayedHeader, "true")
	}
	return writeOperation(w, status, op)
}

func (s *server) get(w http.ResponseWriter, r *http.Request, clientID string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	op, err := s.Operations.Get(r.Context(), clientID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeOperation(w, http.StatusOK, op)
}

func (s *server) list(w http.ResponseWriter, r *http.Request, clientID string) error {
	query, err := wire.ReadQuery(r, "idempotency_key", "state", "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := query.Int("limit", 0, 1)
	if err != nil {
		return err
	}
	filter := operation.Filter{RequestID: query["idempotency_key"], State: operation.State(query["state"])}
	found, err := s.Operations.List(r.Context(), clientID, filter, int(min(limit, page.MaxLimit)), query["cursor"])
	if err != nil {
		return err
	}
	return web.WriteJSON(w, http.StatusOK, NewPageDocument(found))
}

func (s *server) cancel(w http.ResponseWriter, r *http.Request, clientID string) error {
	if _, err := wire.ReadQuery(r); err != nil {
		return err
	}
	op, err := s.Operations.Cancel(r.Context(), clientID, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeOperation(w, http.StatusOK, op)
}

// events answers with the operation after its next change, or, for who accepts server-sent events, with every change.
func (s *server) events(w http.ResponseWriter, r *http.Request, clientID string) error {
	query, err := wire.ReadQuery(r, "after_revision", "wait_seconds")
	if err != nil {
		return err
	}
	after, err := query.Int("after_revision", 0, 0)
	if err != nil {
		return err
	}
	wait, err := query.Seconds("wait_seconds", operation.MaxWait, operation.MaxWait)
	if err != nil {
		return err
	}
	leave, err := s.waiting.Enter(clientID)
	if err != nil {
		return err
	}
	defer leave()
	if wire.WantsStream(r) {
		return s.stream(w, r, clientID, after)
	}
	ctx, cancel := wire.Waiting(r.Context())
	defer cancel()
	op, err := s.Operations.Wait(ctx, clientID, r.PathValue("id"), after, wait)
	if ctx.Err() != nil { // the server stops, so the wait is over
		op, err = s.Operations.Get(r.Context(), clientID, r.PathValue("id"))
	}
	if err != nil {
		return err
	}
	return writeOperation(w, http.StatusOK, op)
}

// stream sends every change after a revision as it becomes durable, and ends after the terminal one. Who has seen that already
// gets 204, which tells a reader of server-sent events not to come back.
func (s *server) stream(w http.ResponseWriter, r *http.Request, clientID string, after int64) error {
	if last := r.Header.Get("Last-Event-ID"); last != "" { // where a reader was before its connection broke
		revision, err := strconv.ParseUint(last, 10, 53)
		if err != nil {
			return wire.Invalid("The header Last-Event-ID is not that of an event of this stream.")
		}
		after = int64(revision) //nolint:gosec // 53 bits fit
	}
	id := r.PathValue("id")
	op, err := s.Operations.Get(r.Context(), clientID, id)
	if err != nil {
		return err
	}
	if op.State.Terminal() && op.Revision <= after {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	ctx, cancel := wire.Waiting(r.Context())
	defer cancel()
	stream := wire.OpenStream(w)
	defer stream.Close()
	for {
		events, err := s.Operations.Events(r.Context(), clientID, id, after)
		if err != nil {
			return err
		}
		for _, event := range events {
			data, err := strictjson.Marshal(NewEventDocument(event))
			if err != nil {
				return err
			}
			if !stream.Send(strconv.FormatInt(event.Revision, 10), string(event.Kind), data) || event.State.Terminal() {
				return nil
			}
			after = event.Revision
		}
		op, err := s.Operations.Wait(ctx, clientID, id, after, wire.Heartbeat)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case op.Revision <= after && (op.State.Terminal() || !stream.Beat()):
			return nil
		}
	}
}

// writeOperation writes an operation, and where and when to look again if it is not terminal.
func writeOperation(w http.ResponseWriter, status int, op operation.Operation) error {
	if !op.State.Terminal() {
		w.Header().Set("Location", operationsPath+"/"+url.PathEscape(op.ID))
		w.Header().Set("Retry-After", "2")
	}
	return web.WriteJSON(w, status, NewDocument(op))
}
