package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"countersign/broker/approval"
	"countersign/broker/operation"
	"countersign/broker/operatorapi"
	"countersign/company/guard"
	"countersign/company/registry"
	"countersign/company/session"
	"countersign/internal/database"
	"countersign/internal/strictjson"
)

// The branches of the broker's story: how it ends.
const (
	branchApprove = "approve"
	branchDeny    = "deny"
	branchCancel  = "cancel"
	branchExpire  = "expire"
	branchChanged = "changed"
)

var branches = []string{branchApprove, branchDeny, branchCancel, branchExpire, branchChanged}

// brokerStory is the second story: a model gets the jacket held through the broker, with one approval and no credential.
type brokerStory struct {
	*world
	branch       string
	once         bool // the story decides for the person, by the command that they would use
	broker       *process
	model        *sdk.ClientSession
	transcript   *transcript
	conversation string
	cursor       string
	offer        struct{ operation, summary string }
	submitted    document
}

// document is what the broker's tools return, as far as the stand-in for a model reads it.
type document struct {
	ID        string          `json:"id"`
	RequestID string          `json:"request_id"`
	State     operation.State `json:"state"`
	Revision  int64           `json:"revision"`
	Result    strictjson.Raw  `json:"result"`
	Error     *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// transcript keeps every message between the model's host and the broker.
type transcript struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

// Write implements io.Writer for the SDK's logging transport. It is given a line for each message, and one for the end.
func (t *transcript) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(p, []byte("read: ")) && !bytes.HasPrefix(p, []byte("write: ")) {
		return len(p), nil
	}
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.text.Write(p)
}

func (t *transcript) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.text.String()
}

// openBrokerStory adds a broker to a world, and a stand-in for a model that speaks to it over MCP, in processes of their own.
func openBrokerStory(ctx context.Context, w *world, branch string, once bool) (*brokerStory, error) {
	s := &brokerStory{world: w, branch: branch, once: once, transcript: new(transcript)}
	folder := filepath.Join(w.dir, "broker")
	if err := (brokerInit{agent: filepath.Join(w.dir, "me"), client: "assistant", operator: "me", approvalTTL: "10m"}).write(folder); err != nil {
		return s, err
	}
	var err error
	if s.broker, err = startProcess(ctx, "the broker", filepath.Join(w.dir, "broker.log"), nil, "broker", "serve", "-c", folder); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	host := sdk.NewClient(&sdk.Implementation{Name: "stand-in-for-a-model", Version: "1"}, nil)
	s.model, err = host.Connect(ctx, &sdk.LoggingTransport{
		Transport: &sdk.CommandTransport{Command: exec.CommandContext(context.WithoutCancel(ctx), self, "broker", "mcp", "-c", folder)},
		Writer:    s.transcript,
	}, nil)
	return s, err
}

func (s *brokerStory) close() error {
	var all []error
	if s.model != nil {
		all = append(all, s.model.Close())
	}
	if s.broker != nil {
		all = append(all, s.broker.stop())
	}
	return errors.Join(all...)
}

func (s *brokerStory) steps() []step {
	steps := []step{
		{"list the tools", "The model sees tools, and nothing else", s.tools},
		{"talk with the shop", "The model talks with the shop", s.converse},
		{"submit the confirmation", "The model submits the confirmation, and gets an answer at once", s.submit},
	}
	switch s.branch {
	case branchDeny:
		return append(steps,
			step{"deny it", "The person sees the exact terms, and denies", s.decide("deny")},
			step{"read the end", "The model reads the end", s.end(operation.Denied, operation.CodeApprovalDenied)},
			step{"prove the transcript clean", "No credential came near the model", s.prove})
	case branchCancel:
		return append(steps,
			step{"cancel it", "The model cancels what it asked for", s.cancel},
			step{"read the end", "The model reads the end", s.end(operation.Canceled, "")},
			step{"prove the transcript clean", "No credential came near the model", s.prove})
	case branchExpire:
		return append(steps,
			step{"let it expire", "Nobody decides in time", s.follow},
			step{"read the end", "The model reads the end", s.end(operation.Expired, operation.CodeApprovalExpired)},
			step{"prove the transcript clean", "No credential came near the model", s.prove})
	case branchChanged:
		return append(steps,
			step{"change the terms", "While the person thinks, the shop changes the terms", s.change},
			step{"approve it", "The person approves what they were shown, which is no longer what is offered", s.decide("approve")},
			step{"read the end", "Nothing was confirmed", s.end(operation.Failed, "terms_changed")},
			step{"prove the transcript clean", "No credential came near the model", s.prove})
	default:
		return append(steps,
			step{"approve it", "The person sees the exact terms, and approves", s.decide("approve")},
			step{"read the result", "The model reads the result", s.result},
			step{"prove the transcript clean", "No credential came near the model", s.prove})
	}
}

// call calls a tool, shows the model's side of it, and reads what comes back.
func (s *brokerStory) call(ctx context.Context, tool string, arguments map[string]any) (document, error) {
	data, err := strictjson.Marshal(arguments)
	if err != nil {
		return document{}, err
	}
	s.t.say("%s %s %s", bold.Render("model calls"), tool, faint.Render(string(data)))
	returned, err := s.model.CallTool(ctx, &sdk.CallToolParams{Name: tool, Arguments: strictjson.Raw(data)})
	if err != nil {
		return document{}, fmt.Errorf("calling %s: %w", tool, err)
	}
	content, err := strictjson.Marshal(returned.StructuredContent)
	if err != nil {
		return document{}, err
	}
	if returned.IsError {
		return document{}, fmt.Errorf("%s answered with an error: %s", tool, plain(string(content)))
	}
	var d document
	if err := strictjson.Unmarshal(content, &d); err != nil {
		return document{}, fmt.Errorf("reading what %s returned: %w", tool, err)
	}
	return d, nil
}

// run submits an operation that needs no person, and waits for its end in steps of at most 25 seconds.
func (s *brokerStory) run(ctx context.Context, tool string, target, arguments map[string]any, reason string) (document, error) {
	d, err := s.call(ctx, tool, map[string]any{"target": target, "arguments": arguments, "reason": reason})
	for err == nil && !d.State.Terminal() {
		d, err = s.call(ctx, "operation_wait", map[string]any{"id": d.ID})
	}
	if err == nil && d.State != operation.Succeeded {
		err = fmt.Errorf("%s ended as %s", tool, d.State)
		if d.Error != nil {
			err = fmt.Errorf("%w: %s", err, plain(d.Error.Message))
		}
	}
	return d, err
}

func (s *brokerStory) tools(ctx context.Context) error {
	s.explain(`A scripted stand-in plays the model: it speaks to the broker through MCP only, over the pipes of a process that its host started.
		It is told to get the insulated jacket held at outdoor.example. There is one tool for each operation that policy could ever let it submit.`)
	found, err := s.model.ListTools(ctx, nil)
	if err != nil {
		return err
	}
	var names []string
	for _, tool := range found.Tools {
		names = append(names, tool.Name)
	}
	for _, needed := range []string{"company_discover", "company_conversation_start", "company_operation_confirm", "operation_wait"} {
		if !slices.Contains(names, needed) {
			return fmt.Errorf("there is no tool %s among %s", needed, strings.Join(names, ", "))
		}
	}
	s.t.say("%s %d tools: %s", good.Render("✓"), len(names), strings.Join(names, ", "))
	return nil
}

// said is what the model reads of a conversation.
type said struct {
	Conversation string `json:"conversation"`
	Cursor       string `json:"cursor"`
	Events       []struct {
		From string `json:"from"`
		Text struct {
			Author string `json:"author"`
			Quoted string `json:"quoted"`
		} `json:"text"`
		Operation *struct {
			Operation string `json:"operation"`
			Revision  int64  `json:"revision"`
			Summary   struct {
				Quoted string `json:"quoted"`
			} `json:"summary"`
		} `json:"operation"`
	} `json:"events"`
}

// hear reads what came back from the shop and keeps the operation that it proposes.
func (s *brokerStory) hear(d document) error {
	var heard said
	if err := strictjson.Unmarshal(d.Result, &heard); err != nil {
		return fmt.Errorf("reading the conversation: %w", err)
	}
	s.conversation, s.cursor = heard.Conversation, heard.Cursor
	for _, event := range heard.Events {
		if event.Text.Quoted != "" && event.From != "us" {
			s.t.say("%s wrote, and the model gets it as a quotation:", bold.Render(event.Text.Author))
			s.t.say("%s", indent("  │ ", event.Text.Quoted))
		}
		if event.Operation != nil {
			s.offer.operation, s.offer.summary = event.Operation.Operation, event.Operation.Summary.Quoted
			s.t.say("%s it proposes operation %s, revision %d", good.Render("✓"), event.Operation.Operation, event.Operation.Revision)
		}
	}
	return nil
}

func (s *brokerStory) converse(ctx context.Context) error {
	s.explain(`Reading and talking run unattended by the policy that 'broker init' writes. The broker does them through the agent, whose Session,
		keys and tokens stay with it. What the shop says reaches the model marked as what the shop said.`)
	d, err := s.run(ctx, "company_conversation_start", map[string]any{"company": "outdoor.example"},
		map[string]any{"text": question}, "The user wants the insulated jacket in medium.")
	if err != nil {
		return err
	}
	if err := s.hear(d); err != nil {
		return err
	}
	if s.offer.operation == "" {
		return errors.New("the shop proposed nothing")
	}
	return nil
}

func (s *brokerStory) submit(ctx context.Context) (err error) {
	s.explain(`Confirming has an effect, so policy lets the model submit it but not run it. The broker reads what the shop offers now, fixes it as a
		plan with a digest, and answers: pending. Nothing waits inside the call.`)
	began := time.Now()
	s.submitted, err = s.call(ctx, "company_operation_confirm", map[string]any{
		"target":    map[string]any{"company": "outdoor.example", "operation": s.offer.operation},
		"arguments": map[string]any{}, "reason": "The user asked to have the jacket held until tomorrow evening.",
		"request_id": "hold-the-jacket-1",
	})
	if err != nil {
		return err
	}
	s.t.say("%s operation %s is %s, %d ms after it was submitted", good.Render("✓"), s.submitted.ID, s.submitted.State, time.Since(began).Milliseconds())
	if s.submitted.State != operation.Pending {
		return fmt.Errorf("it should be pending, but is %s", s.submitted.State)
	}
	again, err := s.call(ctx, "company_operation_confirm", map[string]any{
		"target":    map[string]any{"company": "outdoor.example", "operation": s.offer.operation},
		"arguments": map[string]any{}, "reason": "The user asked to have the jacket held until tomorrow evening.",
		"request_id": "hold-the-jacket-1",
	})
	if err != nil {
		return err
	}
	if again.ID != s.submitted.ID {
		return errors.New("the same request again made a second operation")
	}
	s.t.say("%s the same request again is the same operation", good.Render("✓"))
	return nil
}

// command runs this program as the person would, in a process of its own, and shows what they see.
func (s *brokerStory) command(ctx context.Context, show bool, args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, self, append(args, "-c", filepath.Join(s.dir, "broker"))...)
	if show {
		s.t.say("%s countersign %s", bold.Render("person$"), strings.Join(args, " "))
	}
	out, err := cmd.CombinedOutput()
	if show {
		s.t.say("%s", indent("  ", string(out)))
	}
	if err != nil {
		return "", fmt.Errorf("countersign %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// decide lets the person decide: with --once the command line does it for them; else they do it here or in another terminal.
func (s *brokerStory) decide(verb string) func(context.Context) error {
	return func(ctx context.Context) error {
		s.explain(`The person uses another terminal. They see the Company's name and domain, the summary, the terms and the digest, and decide about that
			digest. The model cannot do it: the operators' socket has a secret of its own.`)
		if !s.once {
			s.t.say("In another terminal:  %s approval list -c %s", commandName(), filepath.Join(s.dir, "broker"))
			s.t.say("Waiting for your decision there …")
			return s.follow(ctx)
		}
		if _, err := s.command(ctx, true, "approval", "list"); err != nil {
			return err
		}
		listed, err := s.command(ctx, false, "approval", "list", "--json")
		if err != nil {
			return err
		}
		var page struct {
			Approvals []operatorapi.Document `json:"approvals"`
		}
		if err := strictjson.Unmarshal([]byte(listed), &page); err != nil {
			return err
		}
		if len(page.Approvals) != 1 || page.Approvals[0].State != approval.Pending {
			return fmt.Errorf("one approval should wait, but there are %d", len(page.Approvals))
		}
		a := page.Approvals[0]
		shown, err := s.command(ctx, true, "approval", "show", a.ID)
		if err != nil {
			return err
		}
		for _, needed := range []string{"Example Outdoor", "outdoor.example", s.offer.summary, a.PlanDigest} {
			if s.branch != branchChanged && !strings.Contains(shown, needed) {
				return fmt.Errorf("the person is not shown %q", needed)
			}
		}
		_, err = s.command(ctx, true, "approval", verb, a.ID, "--digest", a.PlanDigest)
		return err
	}
}

// follow waits for the end of what was submitted, in steps of at most 25 seconds.
func (s *brokerStory) follow(ctx context.Context) (err error) {
	for err == nil && !s.submitted.State.Terminal() {
		s.submitted, err = s.call(ctx, "operation_wait", map[string]any{"id": s.submitted.ID})
	}
	return err
}

func (s *brokerStory) cancel(ctx context.Context) error {
	d, err := s.call(ctx, "operation_cancel", map[string]any{"id": s.submitted.ID})
	if err != nil {
		return err
	}
	s.submitted = d
	_, err = s.command(ctx, true, "approval", "list")
	return err
}

func (s *brokerStory) change(ctx context.Context) error {
	d, err := s.run(ctx, "company_conversation_send", map[string]any{"company": "outdoor.example", "conversation": s.conversation},
		map[string]any{"text": "Could it be large instead?", "cursor": s.cursor}, "The user may want another size.")
	if err != nil {
		return err
	}
	return s.hear(d)
}

// end checks that the operation ended as the branch says, and that the shop performed nothing.
func (s *brokerStory) end(state operation.State, code string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := s.follow(ctx); err != nil {
			return err
		}
		if s.submitted.State != state || code != "" && (s.submitted.Error == nil || s.submitted.Error.Code != code) {
			return fmt.Errorf("the operation should be %s %s, but is %s", state, code, s.submitted.State)
		}
		s.t.say("%s the operation is %s", good.Render("✓"), s.submitted.State)
		if s.submitted.Error != nil {
			s.t.say("%s", indent("  │ ", s.submitted.Error.Message))
		}
		if n := s.performed(); n != 0 {
			return fmt.Errorf("the shop's journal should be empty, but has %d lines", n)
		}
		s.t.say("%s the shop's journal is empty: nothing was done", good.Render("✓"))
		return nil
	}
}

// performed counts the lines of the shop's journal.
func (s *brokerStory) performed() int {
	journal, err := os.ReadFile(filepath.Join(s.dir, "shop", "journal.jsonl"))
	if err != nil {
		return -1
	}
	return bytes.Count(journal, []byte("\n"))
}

func (s *brokerStory) result(ctx context.Context) error {
	s.explain(`The broker executes the stored plan, whose digest was approved: the agent confirms that very revision, and tells the shop that the user
		approved it. The shop performs it, and the model reads what came of it.`)
	if err := s.follow(ctx); err != nil {
		return err
	}
	if s.submitted.State == operation.Denied {
		s.t.say("You denied it: the model is told so, and nothing was done. This was --branch %s.", branchDeny)
		return errSilent(exitFailed)
	}
	if s.submitted.State != operation.Succeeded {
		if s.submitted.Error != nil {
			return fmt.Errorf("the operation ended as %s: %s", s.submitted.State, plain(s.submitted.Error.Message))
		}
		return fmt.Errorf("the operation ended as %s", s.submitted.State)
	}
	var done struct {
		State   string `json:"state"`
		Outcome struct {
			Quoted string `json:"quoted"`
		} `json:"outcome"`
		Data strictjson.Raw `json:"outcome_data"`
	}
	if err := strictjson.Unmarshal(s.submitted.Result, &done); err != nil {
		return err
	}
	s.t.say("%s %s; the shop says: %s %s", good.Render("✓"), done.State, plain(done.Outcome.Quoted), plain(string(done.Data)))
	if n := s.performed(); n != 1 {
		return fmt.Errorf("the shop's journal has %d lines instead of one", n)
	}
	s.t.say("%s the shop's journal has one line", good.Render("✓"))
	return nil
}

// tokenLike finds what could be a Session Token of the shop: 43 characters of base64url.
var tokenLike = regexp.MustCompile(`[A-Za-z0-9_-]{43,}`)

// prove prints what the model's host sent and received, and looks for every credential of this world in it: each secret file, in
// every form that a text could carry, and every Session Token, which the shop knows by its hash.
func (s *brokerStory) prove(ctx context.Context) error {
	if err := s.model.Close(); err != nil {
		return err
	}
	s.model = nil
	text := s.transcript.String()
	s.t.say("The whole transcript, %d bytes:", len(text))
	s.t.say("%s", indent("  ", text))
	var looked []string
	err := filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name := entry.Name()
		if !strings.HasSuffix(name, ".secret") && !strings.HasSuffix(name, ".key") && name != "ca-key.pem" {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(s.dir, path)
		if err != nil {
			return err
		}
		looked = append(looked, relative)
		for line := range strings.Lines(string(data)) {
			for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n\",:{}", r) }) {
				if len(word) >= 20 && strings.Contains(text, word) {
					return fmt.Errorf("the transcript has a part of %s", relative)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	tokens, err := s.tokens(ctx, text)
	if err != nil {
		return err
	}
	for _, mark := range []string{"PRIVATE KEY", "Bearer ", "DPoP ", "eyJ"} {
		if strings.Contains(text, mark) {
			return fmt.Errorf("the transcript has %q", mark)
		}
	}
	s.t.say("%s no part of any of these is in it: %s", good.Render("✓"), strings.Join(looked, ", "))
	s.t.say("%s no Session Token either: the shop knows each by its hash, and of the words that could be one (%d) none has it", good.Render("✓"), tokens)
	s.t.say("%s no private key, no authorization, no signed token", good.Render("✓"))
	return nil
}

// tokens asks the shop's own record about every word of the transcript that could be a Session Token, and returns how many there
// were.
func (s *brokerStory) tokens(ctx context.Context, text string) (int, error) {
	db, err := database.Open(ctx, filepath.Join(s.dir, "shop", "state", stateName("https://auth.outdoor.example")+".db"))
	if err != nil {
		return 0, err
	}
	sessions := session.New(session.Options{Database: db, Now: time.Now, Agents: registry.New(registry.Options{Database: db, Now: time.Now})})
	words := tokenLike.FindAllString(text, -1)
	for _, word := range words {
		for i := 0; i+43 <= len(word); i++ {
			_, err := sessions.Token(ctx, sha256.Sum256([]byte(word[i:i+43])))
			if err == nil {
				return 0, errors.Join(errors.New("the transcript has a Session Token"), db.Close())
			}
			if !errors.Is(err, guard.ErrNoToken) {
				return 0, errors.Join(err, db.Close())
			}
		}
	}
	return len(words), db.Close()
}

// playBrokerDemo plays the second story.
func playBrokerDemo(ctx context.Context, t *terminal, branch string, once bool) (err error) {
	if !slices.Contains(branches, branch) {
		return usage("there is no branch " + plain(branch) + "\nchoose one of " + strings.Join(branches, ", "))
	}
	began := time.Now()
	t.say("%s", bold.Render("A model, a broker, a person, and one jacket"))
	expiresIn := "20m"
	if branch == branchExpire {
		expiresIn = "4s"
	}
	w, err := newWorld(ctx, t, expiresIn)
	defer func() { err = errors.Join(err, w.close()) }()
	if err != nil {
		return err
	}
	// The broker opens the agent itself: here it is only a person's agent that nobody else uses meanwhile.
	s, err := openBrokerStory(ctx, w, branch, once)
	defer func() { err = errors.Join(s.close(), err) }()
	if err != nil {
		return err
	}
	t.say("The shop, the agent's documents, the broker and the model's MCP server are processes on this machine, in %s.", w.dir)
	if err := w.play(ctx, s.steps()); err != nil {
		return err
	}
	t.say("\nDone in %.1f s: it ended as its branch, %s, says.", time.Since(began).Seconds(), branch)
	return nil
}
