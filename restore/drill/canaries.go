package drill

import (
	"context"
	"fmt"

	"github.com/coldtier/coldtier/manifest"
	"github.com/coldtier/coldtier/restore/canary"
	"github.com/coldtier/coldtier/restore/drill/report"
)

// canaries is the step: what was planted is in the cold tier byte for byte. A drill has no
// right on warm tables, so what is to be there is for coldtier canary check.
func (r *run) canaries(ctx context.Context) error {
	c := r.check(report.StepCanary, "planted messages", "each that was archived is in the bucket and in ClickHouse, byte for byte")
	found, err := canary.Check(ctx, canary.Deps{Manifest: r.Deps.Manifest, Reader: r.reader, Rows: r.rows, Layout: r.cfg.Layout, Zone: r.cfg.Zone})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		c.fail(report.Place{What: err.Error()})
	}
	messages := 0
	for i := range found {
		f := &found[i]
		if f.Place == canary.Warm { // one that was not planted to its end
			continue
		}
		c.count("looks in the "+string(f.Place), 1)
		messages += f.Found
		if f.Problem != "" {
			c.fail(report.Place{What: f.String(), Slice: manifest.SliceKey{Source: r.Deps.Manifest.Source(), Shard: f.Shard, Day: f.Day}.String(), Conversation: f.Conversation})
		}
	}
	if len(c.order) == 0 && !c.failed() {
		c.skip("no canary is planted and archived")
		return nil
	}
	c.count("messages", int64(messages))
	c.end(fmt.Sprintf("%d messages are as they were planted", messages))
	return nil
}
