package wire

import (
	"bufio"
	"context"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"countersign/internal/web"
)

// Heartbeat is how long a stream is silent before a comment shows that it still stands.
const Heartbeat = 15 * time.Second

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// writeTimeout bounds how long a reader may take to accept one message.
const writeTimeout = 30 * time.Second

// maxMessage bounds a message that a client reads, in bytes.
const maxMessage = 8 << 20

// WantsStream reports whether the request asks for server-sent events.
func WantsStream(r *http.Request) bool {
	for accepted := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		mediaType, _, _ := strings.Cut(accepted, ";")
		if strings.EqualFold(strings.TrimSpace(mediaType), eventStream) {
			return true
		}
	}
	return false
}

// Stream is an answer of server-sent events. Close it.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// OpenStream starts the answer.
func OpenStream(w http.ResponseWriter) *Stream {
	w.Header().Set("Content-Type", eventStream)
	w.WriteHeader(http.StatusOK)
	return &Stream{w, http.NewResponseController(w)}
}

// Send sends a message, data being JSON, and reports whether the reader is still there.
func (s *Stream) Send(id, event string, data []byte) bool {
	return s.write("id: " + id + "\nevent: " + event + "\ndata: " + string(data) + "\n\n")
}

// Beat sends a comment and reports whether the reader is still there.
func (s *Stream) Beat() bool { return s.write(": still here\n\n") }

func (s *Stream) write(text string) bool {
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout)) // a connection without deadlines has none to miss
	_, err := io.WriteString(s.w, text)
	return err == nil && s.control.Flush() == nil
}

// Close ends the stream. The next answer on the connection has no deadline of this one.
func (s *Stream) Close() { _ = s.control.SetWriteDeadline(time.Time{}) }

// Waiting returns a context that ends with that of a request or when the server begins to stop, for whatever holds a request
// open.
func Waiting(request context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(request)
	go func() {
		select {
		case <-web.Stopping(request):
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Message is one server-sent event as a client gets it.
type Message struct {
	ID   string
	Data []byte // JSON
}

// readStream yields the messages of a stream until it ends. An error is the last thing that is yielded.
func readStream(body io.Reader) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(nil, maxMessage)
		var next Message
		for lines.Scan() {
			field, value, _ := strings.Cut(lines.Text(), ":")
			value = strings.TrimPrefix(value, " ")
			switch field {
			case "id":
				next.ID = value
			case "data":
				next.Data = append(next.Data, value...)
			case "":
				if lines.Text() != "" || next.Data == nil {
					continue // a comment, or the end of a message without data
				}
				if !yield(next, nil) {
					return
				}
				next = Message{ID: next.ID}
			}
		}
		if err := lines.Err(); err != nil {
			yield(Message{}, err)
		}
	}
}
