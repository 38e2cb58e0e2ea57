package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// history is what the demo reads of an answer.
type history struct {
	Messages []struct {
		Cursor string
		Store  string
	}
	State   string
	HasMore bool `json:"has_more"`
	Next    string
}

// serve starts the server, asks it for a page as curl would, and reads a whole
// conversation back, page by page. It gives how long the pages took, sorted.
func (d *demo) serve(ctx context.Context, conversation string, messages int) (_ []time.Duration, err error) {
	fmt.Printf("\n# the history service asks by RPC: gRPC, gRPC-Web or, as here, JSON\n$ coldtier serve &\n")
	cmd := exec.CommandContext(ctx, d.program, "--config", d.config, "serve")
	cmd.Env, cmd.Cancel = d.environ(), func() error { return cmd.Process.Signal(os.Interrupt) }
	log, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, cmd.Process.Signal(os.Interrupt), cmd.Wait())
	}()
	address, lines := "", bufio.NewScanner(log)
	for address == "" && lines.Scan() {
		if _, after, ok := strings.Cut(lines.Text(), "msg=serving address="); ok {
			address = strings.Fields(after)[0]
		}
	}
	if address == "" {
		return nil, fmt.Errorf("coldtier serve gives no address: %w", lines.Err())
	}
	go func() { _, _ = io.Copy(os.Stderr, log) }()
	url := "http://" + address + "/coldtier.v1.ColdHistory/FetchRange"
	ask := func(body string) (*history, []byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return nil, nil, err
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, nil, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, text)
		}
		var h history
		if err == nil {
			err = json.Unmarshal(text, &h)
		}
		return &h, text, err
	}
	body := fmt.Sprintf(`{"conversation": "%s", "limit": 1}`, conversation)
	fmt.Printf("$ curl %s -H 'Content-Type: application/json' -d '%s'\n", url, body)
	_, text, err := ask(body)
	if err != nil {
		return nil, err
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, text, "", "  "); err != nil {
		return nil, err
	}
	fmt.Println(pretty.String())
	var took []time.Duration
	next, read := "", 0
	for range 10 * messages {
		began := time.Now()
		h, _, err := ask(fmt.Sprintf(`{"conversation": "%s", "before": "%s", "limit": 20}`, conversation, next))
		if err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
		read, next = read+len(h.Messages), h.Next
		if h.State == "STATE_COMPLETE" && !h.HasMore {
			slices.Sort(took)
			if read != messages {
				return nil, fmt.Errorf("all pages have %d messages of %d", read, messages)
			}
			return took, nil
		}
	}
	return nil, errors.New("the conversation has no end")
}
