package leasehold

// share has another share of it: by a new fence if that is tighter. nil: there are too many others for that.
func (h *hold) share(halt halt, to share) (isHeld bool, err error) {
	if !h.look() {
		return false, h.lostError()
	}
	as := *h.claim()
	as.share = to
	h.mu.Lock()
	ttl, until := h.ttl, min(h.validUntil, now().add(h.locks.settings.Within))
	h.mu.Unlock()
	isUpgrade, f, u := to == exclusive, fate(h.at), &upgrade{attempt: h.at, hold: h}
	if isUpgrade {
		f = u
		u.count(1)
	}
	came, err := ask(h.locks.server, halt, h.locks.limits(ttl, until), &as, question{asks: asksAcquire, ttl: ttl}, f)
	if isUpgrade {
		u.count(-1)
	}
	if !h.look() {
		return false, h.tooLate(asksAcquire, came, err)
	}
	if err != nil {
		return false, err
	}
	if came.isNil && isUpgrade {
		return false, nil
	}
	h.mu.Lock()
	isOther := came.isNil || !isUpgrade && came.number != h.fence && (h.upgrading == 0 || came.number < h.fence)
	if !isOther {
		h.fence, h.isUnclaimed = came.number, false
	}
	h.mu.Unlock()
	if isOther {
		h.lose(LossTaken)
		return false, h.tooLate(asksAcquire, came, nil)
	}
	h.at.mu.Lock()
	h.at.claim = &as
	h.at.mu.Unlock()
	h.bind(came.on)
	return true, nil
}

// An upgrade is the fate of a request for a smaller share.
type upgrade struct {
	*attempt
	hold *hold
}

func (u *upgrade) count(by int) {
	u.hold.mu.Lock()
	u.hold.upgrading += by
	u.hold.mu.Unlock()
}

func (u *upgrade) left(on *line) {
	u.count(1)
	u.attempt.left(on)
}

// late: if it was carried out, that was by another fence.
func (u *upgrade) late(reply Reply, err error) {
	fence, _, other := number(reply)
	u.hold.mu.Lock()
	u.hold.upgrading--
	isDone := err == nil && other == nil && fence > u.hold.fence
	if isDone {
		u.hold.fence = fence
	}
	u.hold.mu.Unlock()
	if isDone {
		u.mu.Lock()
		as := *u.claim
		as.share = exclusive
		u.claim = &as
		u.mu.Unlock()
	}
	u.attempt.late(reply, err)
}

// hasOther says whether it has another fence than this one, by which it is not held: an upgrade may have been carried out.
func (h *hold) hasOther(halt halt, fence int64) (bool, error) {
	h.mu.Lock()
	isOther, isUnsure := h.fence != fence, h.upgrading > 0
	h.mu.Unlock()
	if isOther || !isUnsure {
		return isOther, nil
	}
	info, err := h.locks.remote.info(halt, h.claim().key)
	if err != nil || info == nil || info.Owner != h.owner() || info.Fence <= fence {
		return false, err
	}
	h.mu.Lock()
	h.fence = max(h.fence, info.Fence)
	h.mu.Unlock()
	return true, nil
}
