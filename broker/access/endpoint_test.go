package access_test

import (
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"countersign/broker/access"
)

// directory returns one that only we can write to, whatever the umask is.
func directory(t *testing.T) string {
	t.Helper()
	// A short path: t.TempDir holds the test's name, and a socket's path is limited.
	dir, err := os.MkdirTemp("", "cs") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func endpoint(t *testing.T, text string) access.Endpoint {
	t.Helper()
	e, err := access.ParseEndpoint(text)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for text, loopback := range map[string]bool{
		"unix:///run/agent.sock": true,
		"http://127.0.0.1:8411":  true,
		"http://127.9.9.9:1":     true,
		"http://[::1]:8411":      true,
		"http://192.0.2.1:8411":  false,
		"http://0.0.0.0:8411":    false,
		"http://[::]:8411":       false,
	} {
		e, err := access.ParseEndpoint(text)
		if err != nil || e.String() != text || e.Loopback() != loopback {
			t.Errorf("%s: got %s, loopback %v, %v", text, e, e.Loopback(), err)
		}
	}
	for _, text := range []string{
		"", "agent.sock", "/run/agent.sock", "unix:agent.sock", "unix://run/agent.sock", "unix:///run/../agent.sock", "unix:///run/",
		"unix:///" + strings.Repeat("a", 100), "http://localhost:8411", "http://127.0.0.1", "http://127.0.0.1:8411/", "http://127.0.0.1:99999",
		"https://127.0.0.1:8411", "http://user@127.0.0.1:8411", "http://127.0.0.1:8411?a=b", "tcp://127.0.0.1:1", "://",
	} {
		if e, err := access.ParseEndpoint(text); err == nil || e != (access.Endpoint{}) {
			t.Errorf("%q: got %s, %v", text, e, err)
		}
	}
}

func TestListenRefusesTheNetworkUnlessConfigured(t *testing.T) {
	t.Parallel()
	e := endpoint(t, "http://0.0.0.0:0")
	if l, err := e.Listen(t.Context(), false); err == nil {
		l.Close()
		t.Error("listens for other machines")
	}
	l, err := e.Listen(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestUnixSocketIsOpenToItsOwnerOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "agent.sock")
	l, err := endpoint(t, "unix://"+path).Listen(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("got %v, %v", info.Mode(), err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestUnixSocketReplacesAStaleOneOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "agent.sock")
	e := endpoint(t, "unix://"+path)

	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close() // as a killed process leaves it
	first, err := e.Listen(t.Context(), false)
	if err != nil {
		t.Fatalf("a stale socket stands in the way: %v", err)
	}
	if second, err := e.Listen(t.Context(), false); err == nil {
		second.Close()
		t.Error("replaced a socket that is in use")
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the socket in use was touched: %v", err)
	}
	conn.Close()

	// A socket that took the place of ours is not ours to remove.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	later, err := e.Listen(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("closing removed another one's socket: %v", err)
	}
}

func TestUnixSocketRefusesAPlaceThatIsNotOurs(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	shared := filepath.Join(dir, "shared")
	if err := os.Mkdir(shared, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(shared, 0o777); err != nil { //nolint:gosec // that is what is refused
		t.Fatal(err)
	}
	other := filepath.Join(dir, "other.sock") // answers, but not to what can be asked here
	datagrams, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: other, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = datagrams.Close() }()
	for _, path := range []string{file, link, other, filepath.Join(shared, "agent.sock"), filepath.Join(dir, "missing", "agent.sock")} {
		if l, err := endpoint(t, "unix://"+path).Listen(t.Context(), false); err == nil {
			l.Close()
			t.Errorf("listens on %s", path)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("the file is now %q, %v", content, err)
	}
}

func TestUnixSocketRefusesAnotherUsersDirectory(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			return // only root can give a directory away
		}
		t.Fatal(err)
	}
	if l, err := endpoint(t, "unix://"+filepath.Join(dir, "agent.sock")).Listen(t.Context(), false); err == nil {
		l.Close()
		t.Error("listens in a directory of another user")
	}
}

func TestTransportSendsNothingToStrangers(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	targets := []access.Endpoint{endpoint(t, "http://192.0.2.1:80")}
	if err := os.Lchown(path, 65534, 65534); err == nil {
		targets = append(targets, endpoint(t, "unix://"+path))
	} else if !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	for _, e := range targets {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.URL(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := e.Transport().RoundTrip(request)
		if err == nil {
			response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "secret is not sent") {
			t.Errorf("%s: got %v", e, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	f.Add("unix:///run/countersign/agent.sock")
	f.Add("http://127.0.0.1:8790")
	f.Add("http://[::1]:8790/")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := access.ParseEndpoint(text)
		if err != nil {
			if e != (access.Endpoint{}) {
				t.Fatal("an endpoint together with an error")
			}
			return
		}
		if again, err := access.ParseEndpoint(e.String()); err != nil || again != e {
			t.Fatalf("%q is read as %v, and that as %v (%v)", text, e, again, err)
		}
	})
}
