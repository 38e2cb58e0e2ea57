package harness

import (
	"regexp"
	"syscall"
	"time"
)

// Server is the program that serves.
type Server struct {
	*Process
	URL string
}

var served = regexp.MustCompile(`msg=serving address=(\S+)`)

// Serve starts the server on a free port; the set-up's fetch section should have
// "listen: 127.0.0.1:0". It is stopped at the test's end, and must then exit with 0.
func (e *Env) Serve(environ ...string) *Server {
	e.T.Helper()
	p := e.Start(environ, "serve")
	end := time.Now().Add(time.Minute)
	for time.Now().Before(end) {
		if m := served.FindStringSubmatch(p.errs.String()); m != nil {
			s := &Server{p, "http://" + m[1]}
			e.T.Cleanup(s.Stop)
			return s
		}
		select {
		case <-p.done:
			e.T.Fatalf("the server does not start: %s", p.Wait())
		case <-time.After(5 * time.Millisecond): // its address is in its log, which nobody announces
		}
	}
	e.T.Fatalf("the server is not up after a minute: %s", p.errs.String())
	return nil
}

// Stop ends the server as a deployment would.
func (s *Server) Stop() {
	s.e.T.Helper()
	select {
	case <-s.done:
		return
	default:
	}
	s.Signal(syscall.SIGTERM)
	if r := s.Wait(); r.Exit != 0 {
		s.e.T.Errorf("the server ends with %s", r)
	}
}
