package config

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Metrics says where jobs put their metrics, which nobody could scrape in time, and from
// which skew on a shard is named.
type Metrics struct {
	Pushgateway string            // http or https URL, with user and password if it wants them; "": none
	Textfile    string            // folder of node_exporter's textfile collector; "": none
	Labels      map[string]string // what is pushed gets these; `instance` names the process
	Skew        float64           // times the median of its day
}

// Traces says where OpenTelemetry's spans go.
type Traces struct {
	Endpoint string            // URL of an OTLP/HTTP receiver; "": nothing is traced
	Sample   float64           // of runs and of requests, 0 to 1
	Headers  map[string]Secret // of its requests
	Insecure bool              // an http URL that leads to another machine
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

func (d *decoder) metrics(m *mapping, c *Metrics) {
	m.text("pushgateway", &c.Pushgateway, func(s string) error {
		u, err := checkURL(s)
		if u != nil && u.User != nil {
			password, _ := u.User.Password()
			d.redactor.Add(password)
		}
		return err
	})
	m.text("textfile", &c.Textfile, nil)
	c.Labels = map[string]string{}
	m.section("labels", false, func(m *mapping) {
		for _, name := range m.names() {
			m.text(name, new(string), func(s string) error {
				c.Labels[name] = s
				switch {
				case !labelName.MatchString(name) || strings.HasPrefix(name, "__"):
					return errors.New("want a name of letters, digits and underscores")
				case name == "job" || name == "source":
					return errors.New("is set by coldtier itself")
				case s == "":
					return errors.New("want a value")
				}
				return nil
			})
		}
	})
	m.formatted("skew", func(s string) (err error) {
		if c.Skew, err = strconv.ParseFloat(s, 64); err != nil || !(c.Skew >= 1.5 && c.Skew <= 1000) {
			return errors.New("want a number of 1.5 to 1000")
		}
		return nil
	})
	if len(c.Labels) > 0 && c.Pushgateway == "" && c.Textfile == "" {
		m.wrong("have no effect without pushgateway or textfile", "labels")
	}
}

func (d *decoder) traces(m *mapping, t *Traces) {
	m.flag("insecure", &t.Insecure)
	m.text("endpoint", &t.Endpoint, func(s string) error {
		u, err := checkURL(s)
		switch {
		case err != nil || u == nil:
			return err
		case u.User != nil:
			return errors.New("want no user and password in it: put them into headers")
		case u.Scheme == "http" && !t.Insecure && !Loopback(withPort(u)):
			return errors.New("spans would cross the network in the clear: want an https URL, or insecure: true")
		}
		return nil
	})
	m.formatted("sample", func(s string) (err error) {
		if t.Sample, err = strconv.ParseFloat(s, 64); err != nil || !(t.Sample >= 0 && t.Sample <= 1) {
			return errors.New("want a number of 0 to 1")
		}
		return nil
	})
	t.Headers = map[string]Secret{}
	m.section("headers", false, func(m *mapping) {
		for _, name := range m.names() {
			var s Secret
			m.secret(name, &s)
			t.Headers[name] = s
		}
	})
}

// names are the keys of a mapping whose keys are names.
func (m *mapping) names() []string { return slices.Sorted(maps.Keys(m.values)) }

// checkURL refuses what is not an http or https URL; "" is none, and no error.
func checkURL(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("want an http or https URL, such as http://pushgateway:9091") // of which url.Parse's own error may quote a password
	}
	return u, nil
}

func withPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return fmt.Sprintf("%s:80", u.Host)
}
