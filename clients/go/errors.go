package leasehold

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What can go wrong, for [errors.Is]. The types beside them, for [errors.As], say more.
var (
	// ErrBusy: others have the lock, and had it for as long as one was ready to wait.
	ErrBusy = errors.New("leasehold: the lock is busy")
	// ErrLost: the lock is not held any more. It is the cause of the context of a lease.
	ErrLost = errors.New("leasehold: the lock is lost")
	// ErrUnreachable: nobody answered in time, or nobody who may grant locks.
	ErrUnreachable = errors.New("leasehold: no server that grants locks")
	// ErrTooLate: the lock was granted, and its lease was over when the answer came.
	ErrTooLate = errors.New("leasehold: the lease was over when the answer came")
	// ErrTooFewReplicas: fewer replicas than were asked for have the grant, and the lock was given back.
	ErrTooFewReplicas = errors.New("leasehold: too few replicas have the lock")
	// ErrUnanswered: a guarded command was sent, and nobody knows whether it was run.
	ErrUnanswered = errors.New("leasehold: nobody has answered")
	// ErrClosed: the [Locks] were closed.
	ErrClosed = errors.New("leasehold: closed")
	// ErrSetting: a setting or an option has no sense.
	ErrSetting = errors.New("leasehold: a setting has no sense")
	// ErrRefused: the server has refused a request, for one of the reasons below or another one.
	ErrRefused = errors.New("leasehold: refused by the server")
	// ErrNeedsModule: the server does not have the module, which this feature is of.
	ErrNeedsModule = errors.New("leasehold: needs the module")
	// ErrPermission: the user may not run the command, or not on this key (NOPERM).
	ErrPermission = errors.New("leasehold: not permitted")
	// ErrAuthentication: the password is wrong, or there is none (WRONGPASS, NOAUTH).
	ErrAuthentication = errors.New("leasehold: wrong password")
	// ErrOutOfMemory: the server is above its maxmemory (OOM).
	ErrOutOfMemory = errors.New("leasehold: the server is out of memory")
	// ErrReadOnly: the server is a replica (READONLY).
	ErrReadOnly = errors.New("leasehold: the server is read only")
	// ErrQueueFull: as many wait as may (QUEUEFULL).
	ErrQueueFull = errors.New("leasehold: the queue is full")
	// ErrWrongType: the key holds something that is no lock (WRONGTYPE).
	ErrWrongType = errors.New("leasehold: the key holds something that is no lock")
)

// errSurprise: nobody knows what the server did. Its reply was none of those to the command.
var errSurprise = fmt.Errorf("%w: a reply of an unexpected type", ErrRefused)

// A Loss is why a lease holds nothing any more.
type Loss string

const (
	// LossExpired: the lease has run out, or could have, before it was renewed.
	LossExpired Loss = "expired"
	// LossTaken: the server says that it is not this lease's. It was deleted, or somebody else has it.
	LossTaken Loss = "taken"
	// LossReleased: the program has released it, or detached it.
	LossReleased Loss = "released"
	// LossClosed: the [Locks] were closed, and gave the lock back.
	LossClosed Loss = "closed"
)

var why = map[Loss]string{
	LossExpired:  "its lease could have ended",
	LossTaken:    "the server says that it is not held",
	LossReleased: "it was released",
	LossClosed:   "the client was closed",
}

// LostError is an [ErrLost].
type LostError struct {
	Lock string
	Loss Loss
	// Err is what the last try to renew the lease came to, if it failed.
	Err error
}

func (e *LostError) Error() string {
	because := ""
	if e.Err != nil {
		because = ": " + e.Err.Error()
	}
	return fmt.Sprintf("leasehold: the lock %s is lost: %s%s", e.Lock, why[e.Loss], because)
}

func (e *LostError) Unwrap() error { return e.Err }
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrClosed && e.Loss == LossClosed
}

// BusyError is an [ErrBusy].
type BusyError struct {
	Lock   string
	Waited time.Duration
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("leasehold: the lock %s was held by others for %v", e.Lock, e.Waited.Round(time.Millisecond))
}

func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// TooFewReplicasError is an [ErrTooFewReplicas].
type TooFewReplicasError struct {
	Lock                 string
	Acknowledged, Wanted int
}

func (e *TooFewReplicasError) Error() string {
	return fmt.Sprintf("leasehold: of %d replicas that were to have the lock %s, %d said so in time", e.Wanted, e.Lock, e.Acknowledged)
}

func (e *TooFewReplicasError) Is(target error) bool { return target == ErrTooFewReplicas }

// SettingError is an [ErrSetting].
type SettingError struct{ Setting, Reason string }

func (e *SettingError) Error() string        { return "leasehold: " + e.Setting + ": " + e.Reason }
func (e *SettingError) Is(target error) bool { return target == ErrSetting }

// RefusedError is an [ErrRefused]: the server has answered with an error that another try would not mend, or that all tries
// came to.
type RefusedError struct {
	// Code is the first word of the server's error, such as NOPERM.
	Code, Message string
}

var codes = map[string]error{
	"MODULE": ErrNeedsModule, "NOPERM": ErrPermission, "NOAUTH": ErrAuthentication, "WRONGPASS": ErrAuthentication,
	"OOM": ErrOutOfMemory, "READONLY": ErrReadOnly, "QUEUEFULL": ErrQueueFull, "WRONGTYPE": ErrWrongType,
}

func (e *RefusedError) Error() string { return "leasehold: " + e.Message }
func (e *RefusedError) Is(target error) bool {
	return target == ErrRefused || target != nil && target == codes[e.Code]
}

func needsModule(feature string) error {
	return &RefusedError{"MODULE", feature + " needs the module, which this server does not have"}
}

func unreachable(err error) error { return fmt.Errorf("%w: %w", ErrUnreachable, err) }

// A verdict is what an error means for whoever asked.
type verdict int

const (
	// broken: nobody knows whether the request was heard.
	broken verdict = iota
	// elsewhere: this server does not grant locks any more.
	elsewhere
	// again: in a moment it may be different.
	again
	// unknownCommand, unknownScript, hasModule: it is to be asked in other words.
	unknownCommand
	unknownScript
	hasModule
	// refused: another try would come to the same.
	refused
)

var (
	// Redis 6.2 wraps the error of a command that a script calls.
	codePattern = regexp.MustCompile(`^(?:ERR Error running script .*?: -)?([A-Z][A-Z0-9]+)(?: |$)`)
	passing     = strings.Fields("TRYAGAIN LOADING CLUSTERDOWN MASTERDOWN BUSY QUEUEFULL NOREPLICAS MISCONF MOVED ASK")
)

// codeOf returns the code that a server's error begins with. Errors of connections and of this package have none.
func codeOf(err error) string {
	var said ServerError
	if !errors.As(err, &said) {
		return ""
	}
	if found := codePattern.FindStringSubmatch(string(said)); found != nil {
		return found[1]
	}
	return ""
}

func judge(err error) verdict {
	var said ServerError
	if !errors.As(err, &said) {
		if isOurs(err) {
			return refused
		}
		return broken
	}
	switch code := codeOf(said); {
	case code == "READONLY" || code == "UNBLOCKED":
		return elsewhere
	case slices.Contains(passing, code):
		return again
	case code == "NOSCRIPT":
		return unknownScript
	case code == "LEASEHOLD":
		return hasModule
	case code == "ERR" && strings.Contains(string(said), " unknown command "):
		return unknownCommand
	case code == "ERR" && strings.Contains(string(said), "max number of clients reached"):
		return again
	}
	return refused
}

// isOurs says whether an error is one that callers are told.
func isOurs(err error) bool {
	kinds := []error{ErrRefused, ErrLost, ErrSetting, ErrUnreachable, ErrBusy, ErrTooLate, ErrTooFewReplicas, ErrUnanswered, ErrClosed}
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}

// told is what the caller is told when no more tries are made. trouble is why there is no connection, if that is known.
func told(err, trouble error) error {
	if isOurs(err) || errors.Is(err, context.Canceled) || errors.Is(err, errStopped) {
		return err
	}
	var said ServerError
	if errors.As(err, &said) {
		return &RefusedError{codeOf(said), string(said)}
	}
	switch {
	case trouble == nil || trouble.Error() == err.Error():
		return unreachable(err)
	case judge(trouble) == refused:
		return told(trouble, nil)
	}
	return unreachable(fmt.Errorf("%w: %w", err, trouble))
}

// mayPass says whether a server refused because it is not ready: a later try may succeed.
func mayPass(err error) bool {
	var said *RefusedError
	return errors.As(err, &said) && slices.Contains(passing, said.Code)
}

// isFinal says whether a server refused what it would refuse again.
func isFinal(err error) bool {
	var said *RefusedError
	return errors.As(err, &said) && !mayPass(err) && said.Code != "READONLY"
}
