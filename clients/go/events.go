package leasehold

import (
	"context"
	"time"
)

// A Step is what happens to a lock.
type Step string

const (
	// StepAsked: a lock is asked for.
	StepAsked Step = "asked"
	// StepQueued: it is waited for in the server's queue.
	StepQueued Step = "queued"
	// StepGranted: it is held.
	StepGranted Step = "granted"
	// StepRefused: nobody has it for this. Others do, or Err says why.
	StepRefused Step = "refused"
	// StepRenewed: its lease was extended.
	StepRenewed Step = "renewed"
	// StepLost: it is held no more, and nobody has given it up.
	StepLost Step = "lost"
	// StepReleased: it was given up, with the Outcome, or left to its lease as Err says.
	StepReleased Step = "released"
)

// An Event is one step of one lock.
type Event struct {
	// Context is that of Acquire, for traces. It may have ended.
	Context context.Context
	Step    Step
	// Request is the same for all steps of what was asked for once. Each try of a [Quorum] has another owner.
	Request int64
	// Name is the lock, or several.
	Name  string
	Owner string
	// Fence is that of the grant; 0 before.
	Fence int64
	// After is how long after it was asked for, until it is granted or refused; and after the grant from then on.
	After time.Duration
	// Outcome is a [Loss], or an [Outcome] of a release.
	Outcome string
	Err     error
}
