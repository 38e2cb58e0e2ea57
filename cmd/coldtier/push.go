package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/coldtier/coldtier/cmd/coldtier/config"
)

// Where metrics are pushed to.
const (
	pushGateway  = "pushgateway"
	pushTextfile = "textfile"
)

// pushEvery is how often a run that goes on tells its metrics: one that is held back or
// hangs is seen by them. pushTimeout bounds a push, also the last one, after a signal.
const (
	pushEvery   = 15 * time.Second
	pushTimeout = 3 * time.Second
)

// pusher puts the metrics of a job where Prometheus finds them after the process has ended.
type pusher struct {
	cfg      config.Metrics
	job      string
	source   string
	instance string
	from     prometheus.Gatherer
	failures map[string]prometheus.Counter
	log      *slog.Logger
	failed   map[string]bool // the last push to a target did
}

// pushing pushes the metrics of a job, now, every pushEvery, and a last time when the
// function it gives is called. What cannot be pushed does no harm to the run.
func (a *app) pushing(ctx context.Context, p *parts, job string) (stop func()) {
	c := p.cfg.Metrics
	if c.Pushgateway == "" && c.Textfile == "" {
		return func() {}
	}
	reg := prometheus.NewRegistry()
	w := newWhole(ctx, a.log, a.now, p, jobsEvery)
	reg.MustRegister(w)
	reg.MustRegister(newDrillAge(ctx, p.cfg.Source.Name, a.now, p.manifest.LastGoodDrill))
	t := a.telemetry
	u := &pusher{cfg: c, job: job, source: p.cfg.Source.Name, instance: instance(c.Labels, a.limits.worker, a.lookup.Env, os.Hostname),
		from: prometheus.Gatherers{t.registry, reg}, failures: t.pushFailures, log: a.log, failed: map[string]bool{}}
	every, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(pushEvery)
		defer tick.Stop()
		for {
			u.push(ctx)
			select {
			case <-tick.C:
			case <-every:
				return
			}
		}
	}()
	return func() {
		close(every)
		<-ended
		w.again()
		u.push(ctx)
	}
}

// cronPod is the name of a pod of a Kubernetes CronJob's Job: each run's is another.
var cronPod = regexp.MustCompile(`^(.+)-[0-9]{7,12}(?:-[0-9]+)?-[a-z0-9]{5}$`)

// instance names a process among those that do the same job, and is the same for the one
// that follows it: else each run would leave metrics of its own behind.
func instance(labels map[string]string, worker string, env func(string) (string, bool), hostname func() (string, error)) string {
	if s := labels["instance"]; s != "" {
		return s
	}
	if worker != "" {
		return worker
	}
	if s, _ := env(envWorker); s != "" {
		return s
	}
	host, err := hostname()
	if err != nil {
		return "unknown"
	}
	if _, in := env("KUBERNETES_SERVICE_HOST"); in {
		if m := cronPod.FindStringSubmatch(host); m != nil {
			return m[1]
		}
	}
	return host
}

// push pushes once. It goes on when ctx has ended: the last push is then still to come.
func (u *pusher) push(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pushTimeout)
	defer cancel()
	if u.cfg.Pushgateway != "" {
		u.told(ctx, pushGateway, u.gateway(ctx))
	}
	if u.cfg.Textfile != "" {
		u.told(ctx, pushTextfile, u.textfile())
	}
}

// told counts a failure, and logs the first of a row.
func (u *pusher) told(ctx context.Context, target string, err error) {
	if err != nil {
		u.failures[target].Inc()
		if !u.failed[target] {
			u.log.WarnContext(ctx, "metrics cannot be pushed; others like it are not logged until one can", "target", target, "error", err)
		}
	}
	u.failed[target] = err != nil
}

// gateway pushes to a Pushgateway. Job, source and instance name the group, so that they
// may not be on the metrics as well.
func (u *pusher) gateway(ctx context.Context) error {
	to, err := url.Parse(u.cfg.Pushgateway)
	if err != nil {
		return errors.New("metrics.pushgateway: no URL")
	}
	who := to.User
	to.User = nil
	p := push.New(strings.TrimSuffix(to.String(), "/"), strings.ReplaceAll(u.job, " ", "_")).Grouping("source", u.source).Grouping("instance", u.instance).
		Client(&http.Client{Timeout: pushTimeout}).Gatherer(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return u.gather(func(l *dto.LabelPair) bool { return slices.Contains([]string{"job", "source"}, l.GetName()) })
	}))
	for _, name := range slices.Sorted(maps.Keys(u.cfg.Labels)) {
		if name != "instance" {
			p = p.Grouping(name, u.cfg.Labels[name])
		}
	}
	if who != nil {
		password, _ := who.Password()
		p = p.BasicAuth(who.Username(), password)
	}
	if err := p.PushContext(ctx); err != nil {
		return fmt.Errorf("push metrics to the Pushgateway: %w", err)
	}
	return nil
}

// gather gives coldtier's metrics but those of other jobs, without the labels that drop says.
// Those of the process are left out: it is gone when they are read.
func (u *pusher) gather(drop func(*dto.LabelPair) bool) ([]*dto.MetricFamily, error) {
	all, err := u.from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var mine []*dto.MetricFamily
	for _, f := range all {
		if !strings.HasPrefix(f.GetName(), "coldtier_") {
			continue
		}
		f.Metric = slices.DeleteFunc(f.Metric, func(m *dto.Metric) bool {
			return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "job" && l.GetValue() != u.job })
		})
		for _, m := range f.Metric {
			m.Label = slices.DeleteFunc(slices.Clone(m.Label), drop) // a collector may keep its own
		}
		if len(f.Metric) > 0 {
			mine = append(mine, f)
		}
	}
	return mine, nil
}

// textfile writes a file for node_exporter's textfile collector, which never sees half of it.
func (u *pusher) textfile() (err error) {
	families, err := u.gather(func(*dto.LabelPair) bool { return false })
	if err != nil {
		return err
	}
	name := filepath.Join(u.cfg.Textfile, u.filename())
	f, err := os.CreateTemp(u.cfg.Textfile, ".coldtier-*")
	if err != nil {
		return fmt.Errorf("metrics.textfile: %w: name a folder that is there and that this user may write", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("metrics.textfile %s: %w", name, errors.Join(err, os.Remove(f.Name())))
		}
	}()
	for _, m := range families {
		for _, x := range m.Metric {
			u.label(x)
		}
		if _, err = expfmt.MetricFamilyToText(f, m); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err = errors.Join(f.Chmod(0o644), f.Close()); err != nil { // the collector is another user
		return err
	}
	return os.Rename(f.Name(), name)
}

// label adds the configured labels and the job, as the group does at a Pushgateway, but for
// those that a metric has itself.
func (u *pusher) label(m *dto.Metric) {
	labels := maps.Clone(u.cfg.Labels)
	labels["job"] = u.job
	for name, value := range labels {
		if !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name }) {
			m.Label = append(m.Label, &dto.LabelPair{Name: new(name), Value: new(value)}) // of gather's copy
		}
	}
	slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// filename is one a job; workers of one machine are told apart by a label `instance`.
func (u *pusher) filename() string {
	parts := []string{"coldtier", u.source, u.job}
	if s := u.cfg.Labels["instance"]; s != "" {
		parts = append(parts, s)
	}
	return regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(strings.Join(parts, "_"), "_") + ".prom"
}
