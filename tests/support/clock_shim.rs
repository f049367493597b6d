//! Preloaded into a server: moves its wall clock by an offset that a test may change at any time.
//!
//! The offset is one word of microseconds in a file that both sides map. Only the three calls that tell
//! the wall clock are replaced; the monotonic clock, by which the server sleeps, is left alone. The real
//! clock is read by system call, since the C library's functions are the ones replaced. Nothing here
//! allocates: the server's allocator asks for the time before it is ready.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

#[cfg(target_arch = "x86_64")]
const SYS_CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const SYS_CLOCK_GETTIME: c_long = 113;

const CLOCK_REALTIME: c_int = 0;
const CLOCK_REALTIME_COARSE: c_int = 5;
const O_RDONLY: c_int = 0;
const PROT_READ: c_int = 1;
const MAP_SHARED: c_int = 1;

const MICROS: i64 = 1_000_000;

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanos: i64,
}

#[repr(C)]
pub struct Timeval {
    seconds: i64,
    micros: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn close(file: c_int) -> c_int;
    fn mmap(at: *mut c_void, length: usize, protection: c_int, flags: c_int, file: c_int, offset: i64)
    -> *mut c_void;
}

/// Used while there is no file.
static ZERO: AtomicI64 = AtomicI64::new(0);

/// The mapped word, once known.
static OFFSET: AtomicPtr<AtomicI64> = AtomicPtr::new(ptr::null_mut());

fn offset() -> i64 {
    let mut word = OFFSET.load(Ordering::Acquire);
    if word.is_null() {
        word = map();
        OFFSET.store(word, Ordering::Release);
    }
    unsafe { &*word }.load(Ordering::Relaxed)
}

fn map() -> *mut AtomicI64 {
    let zero = (&raw const ZERO).cast_mut();
    unsafe {
        let path = getenv(c"LEASEHOLD_CLOCK_OFFSET".as_ptr());
        if path.is_null() {
            return zero;
        }
        let file = open(path, O_RDONLY);
        if file < 0 {
            return zero;
        }
        let word = mmap(ptr::null_mut(), size_of::<AtomicI64>(), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if word.addr() == usize::MAX { zero } else { word.cast() }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    let outcome = unsafe { syscall(SYS_CLOCK_GETTIME, c_long::from(clock), time) };
    if outcome == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        let offset = offset();
        let time = unsafe { &mut *time };
        let micros = time.nanos / 1_000 + offset.rem_euclid(MICROS);
        time.seconds += offset.div_euclid(MICROS) + micros / MICROS;
        time.nanos = micros % MICROS * 1_000 + time.nanos % 1_000;
    }
    if outcome == 0 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, _zone: *mut c_void) -> c_int {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    let outcome = unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        unsafe { *time = Timeval { seconds: now.seconds, micros: now.nanos / 1_000 } };
    }
    outcome
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut i64) -> i64 {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        unsafe { *time = now.seconds };
    }
    now.seconds
}
