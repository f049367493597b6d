package leasehold

import (
	"syscall"
	"time"
	"unsafe"
)

const bootTime = 7

// gap is how far the clock that goes on while the machine is suspended is ahead of this time since the start.
// CLOCK_BOOTTIME is such a clock; the monotonic clock of package time is not.
func gap(fine, _ time.Duration) time.Duration {
	var ts syscall.Timespec
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&ts)), 0); failed != 0 {
		return 0
	}
	return time.Duration(ts.Nano()) - fine
}
