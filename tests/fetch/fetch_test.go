package fetch

import "testing"

// What needs no data of its own shares one set-up, since to archive takes longer than to read.
func TestSharedSetUp(t *testing.T) {
	c := newCold(t, random(t), 6, 2400, 40)
	each(t, c, []one{
		{"Faults", testFaults},
		{"BitFlips", testBitFlips},
		{"DamageIsHealedByClickHouse", testDamageIsHealedByClickHouse},
		{"LostObjects", testLostObjects},
		{"NoBucket", testNoBucket},
		{"StalledBody", testStalledBody},
		{"FrozenBucket", testFrozenBucket},
		{"SlowIsNotDead", testSlowIsNotDead},
		{"Cancelled", testCancelled},
		{"CancelledQueries", testCancelledQueries},
		{"Requests", testRequests},
		{"Queries", testQueries},
		{"ReadAhead", testReadAhead},
		{"Statuses", testStatuses},
		{"Served", testServed},
	})
}

type one struct {
	name string
	run  func(t *testing.T, c *cold)
}

func each(t *testing.T, c *cold, all []one) {
	for _, o := range all {
		t.Run(o.name, func(t *testing.T) { o.run(t, c) })
	}
}

// Highest numbers, thinly spread days and one very big day.
func TestExtremes(t *testing.T) {
	c := newExtremes(t)
	each(t, c, []one{
		{"HighestNumbers", testHighestNumbers},
		{"ThinDays", testThinDays},
		{"BigDay", testBigDay},
		{"FoldedStatus", testFoldedStatus}, // the last, as it archives anew
	})
}
