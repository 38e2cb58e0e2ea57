package guard

import "sync"

// LimitsConfig says how many calls may be inside at once; 0 is no limit.
type LimitsConfig struct {
	Process      int // in all
	Tenant       int // of one tenant
	Conversation int // of one conversation, whichever tenants they name
}

// Limits bounds the calls that are inside. Nobody queues: who finds no room is told so
// at once, as a queue before a slow store only grows ("Site Reliability Engineering",
// 2016, chapter 22, on queue management).
type Limits struct {
	cfg LimitsConfig

	mu            sync.Mutex
	inside        int
	tenants       map[string]int // only of those inside
	conversations map[string]int
}

// NewLimits makes limits with nobody inside.
func NewLimits(cfg LimitsConfig) *Limits {
	return &Limits{cfg: cfg, tenants: map[string]int{}, conversations: map[string]int{}}
}

// Enter lets a call in, or says that there is no room and changes nothing. leave may be
// called several times; it is never nil. The tenant "" is nobody in particular and not
// limited as one; so is the conversation nil, but not the empty one.
func (l *Limits) Enter(tenant string, conversation []byte) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	byTenant := tenant != "" && l.cfg.Tenant > 0
	byConversation := conversation != nil && l.cfg.Conversation > 0
	if l.cfg.Process > 0 && l.inside >= l.cfg.Process ||
		byTenant && l.tenants[tenant] >= l.cfg.Tenant ||
		byConversation && l.conversations[string(conversation)] >= l.cfg.Conversation {
		return func() {}, false
	}
	l.inside++
	if byTenant {
		l.tenants[tenant]++
	}
	key := ""
	if byConversation {
		key = string(conversation)
		l.conversations[key]++
	}
	var once sync.Once
	return func() {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.inside--
			if byTenant {
				drop(l.tenants, tenant)
			}
			if byConversation {
				drop(l.conversations, key)
			}
		})
	}, true
}

func drop(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}

// InFlight is the number of calls inside.
func (l *Limits) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inside
}
