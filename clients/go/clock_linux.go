package leasehold

import (
	"syscall"
	"time"
	"unsafe"
)

const bootTime = 7

var started = time.Now()

// CLOCK_BOOTTIME goes on while the machine is suspended; the monotonic clock of package time does not.
func now() moment {
	var ts syscall.Timespec
	if _, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, bootTime, uintptr(unsafe.Pointer(&ts)), 0); failed != 0 {
		return moment(time.Since(started))
	}
	return moment(ts.Nano())
}
