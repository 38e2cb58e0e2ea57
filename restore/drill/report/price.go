package report

import (
	"fmt"

	"github.com/shopspring/decimal"
)

// Prices are what the bucket's provider takes, as decimal numbers; "" counts nothing.
type Prices struct {
	Currency                            string
	GetPer1000, PutPer1000, ListPer1000 string
	GBRead                              string // 2^30 bytes that leave the store
	GBMonth                             string // 2^30 bytes kept for a month
}

const (
	gib     = 1 << 30
	monthly = "keeping all objects for a month"
)

// PriceOf says what the bucket's traffic cost. archive is the size of all objects, for what
// keeping them costs in a month; 0 leaves that out.
func PriceOf(p Prices, traffic []Traffic, archive int64) (Cost, error) {
	c := Cost{Currency: p.Currency, Items: []CostItem{}, Total: "0"}
	requests, read := map[Operation]int64{}, int64(0)
	for _, t := range traffic {
		if t.Store != StoreBucket {
			continue
		}
		requests[t.Operation] += t.Requests
		if t.Operation != OpPut {
			read += t.Bytes
		}
	}
	sum := decimal.Zero
	none := true
	for _, line := range []struct {
		what, unit, price string
		quantity          int64
		per               int64
	}{
		{"reading requests (GET)", "1,000 requests", p.GetPer1000, requests[OpGet], 1000},
		{"writing requests (PUT)", "1,000 requests", p.PutPer1000, requests[OpPut], 1000},
		{"listing requests (LIST)", "1,000 requests", p.ListPer1000, requests[OpList], 1000},
		{"data read", "GB", p.GBRead, read, gib},
		{monthly, "GB", p.GBMonth, archive, gib},
	} {
		if line.price == "" {
			continue
		}
		none = false
		price, err := decimal.NewFromString(line.price)
		if err != nil {
			return c, fmt.Errorf("price of %s: %w", line.what, err)
		}
		quantity := decimal.NewFromInt(line.quantity).Div(decimal.NewFromInt(line.per))
		money := quantity.Mul(price)
		item := CostItem{What: line.what, Quantity: quantity.InexactFloat64(), Unit: line.unit, UnitPrice: line.price, Money: money.Round(8).String()}
		if line.what == monthly { // it is no cost of the drill
			if archive > 0 {
				c.Monthly = &item
			}
			continue
		}
		sum = sum.Add(money)
		c.Items = append(c.Items, item)
	}
	c.Total = sum.Round(8).String()
	if none {
		c.Note = "the price table drill.prices is empty"
	}
	return c, nil
}
