package config

import "errors"

// Costs are what the bucket's and ClickHouse's providers take, for plans. Each price is a
// decimal number; "": it is not counted. With all of them empty no money is shown. A GiB has
// 2^30 bytes.
type Costs struct {
	Currency           string
	Put1000            string // for 1,000 PUT requests
	Get1000            string // for 1,000 GET requests
	List1000           string // for 1,000 LIST requests
	StorageGiBMonth    string // for a GiB in the bucket for a month
	ClickHouseGiBMonth string // for a GiB of ClickHouse's disks for a month
}

// Set says whether there is any price.
func (c Costs) Set() bool {
	return c.Put1000+c.Get1000+c.List1000+c.StorageGiBMonth+c.ClickHouseGiBMonth != ""
}

func costs(m *mapping, c *Costs) {
	m.text("currency", &c.Currency, func(s string) error {
		if !made(s, 1, 8, "") {
			return errors.New("want a currency such as USD")
		}
		return nil
	})
	m.price("put_1000", &c.Put1000)
	m.price("get_1000", &c.Get1000)
	m.price("list_1000", &c.List1000)
	m.price("storage_gib_month", &c.StorageGiBMonth)
	m.price("clickhouse_gib_month", &c.ClickHouseGiBMonth)
}
