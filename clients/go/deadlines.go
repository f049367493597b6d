package leasehold

import (
	"sync"
	"time"
)

// A deadline is something that is to be done at some moment.
type deadline interface {
	// at is where it is among all, and when it is due.
	when() *due
	due()
}

type due struct {
	at    moment
	index int // 0: nowhere; else one more than its place
}

// longestRest: no timer is longer. One that was set before the machine went to sleep is late by as long as it slept.
const longestRest = time.Second

// deadlines have one timer for all of them, which looks at all when it fires.
type deadlines struct {
	mu    sync.Mutex
	all   []deadline
	timer *time.Timer
	armed moment
	// isBusy: what is due is being done, and the timer is set after that.
	isBusy   bool
	isClosed bool
}

// set has it done then, or right after. It may be set already, for another moment.
func (d *deadlines) set(one deadline, at moment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed {
		return
	}
	when := one.when()
	when.at = at
	if when.index == 0 {
		d.all = append(d.all, one)
		when.index = len(d.all)
	}
	if !d.isBusy && at < d.armed {
		d.arm(at)
	}
}

func (d *deadlines) cancel(one deadline) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(one)
}

func (d *deadlines) remove(one deadline) {
	when := one.when()
	if when.index == 0 {
		return
	}
	last := d.all[len(d.all)-1]
	d.all[when.index-1] = last
	last.when().index = when.index
	d.all[len(d.all)-1] = nil
	d.all = d.all[:len(d.all)-1]
	when.index = 0
}

func (d *deadlines) arm(at moment) {
	resting := min(max(at.left(), time.Duration(len(d.all))*time.Microsecond), longestRest)
	d.armed = now().add(resting)
	if d.timer == nil {
		d.timer = time.AfterFunc(resting, d.run)
	} else {
		d.timer.Reset(resting)
	}
}

func (d *deadlines) run() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isBusy || d.isClosed {
		return
	}
	d.isBusy = true
	here := now()
	var due []deadline
	for _, one := range d.all {
		if one.when().at <= here {
			due = append(due, one)
		}
	}
	for _, one := range due {
		d.remove(one)
	}
	d.mu.Unlock()
	for _, one := range due {
		one.due()
	}
	d.mu.Lock()
	d.isBusy = false
	d.armed = never
	earliest := never
	for _, one := range d.all {
		earliest = min(earliest, one.when().at)
	}
	if earliest != never && !d.isClosed {
		d.arm(earliest)
	}
}

func (d *deadlines) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.isClosed = true
	if d.timer != nil {
		d.timer.Stop()
	}
}
