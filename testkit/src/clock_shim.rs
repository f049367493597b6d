//! Preloaded into a server: moves its wall clock by an offset that a test may change at any time.
//!
//! The first word of a file that both sides map is the offset in microseconds. Two more words describe a step at an
//! exact moment: after how many reads of the clock, and by how much. The fourth word is how long the machine seems to
//! have been suspended. The clock that counts suspends is ahead by that time.
//!
//! Only the three calls that read the wall clock are replaced. The monotonic clock, by which the server sleeps, stays
//! as it is. The real clock is read by system call, because the functions of the C library are replaced. Nothing here
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
const CLOCK_BOOTTIME: c_int = 7;
const O_RDWR: c_int = 2;
const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
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

#[repr(C)]
struct Words {
    offset: AtomicI64,
    reads: AtomicI64,
    step: AtomicI64,
    suspended: AtomicI64,
}

/// Used while there is no file.
static ZERO: Words = Words {
    offset: AtomicI64::new(0),
    reads: AtomicI64::new(0),
    step: AtomicI64::new(0),
    suspended: AtomicI64::new(0),
};

/// The mapped words, once known.
static WORDS: AtomicPtr<Words> = AtomicPtr::new(ptr::null_mut());

fn words() -> &'static Words {
    let mut words = WORDS.load(Ordering::Acquire);
    if words.is_null() {
        words = map();
        WORDS.store(words, Ordering::Release);
    }
    // SAFETY: either `ZERO` or the mapped file, which stays mapped until the process ends.
    unsafe { &*words }
}

fn offset() -> i64 {
    let words = words();
    let offset = words.offset.load(Ordering::SeqCst);
    if words.reads.load(Ordering::SeqCst) > 0 && words.reads.fetch_sub(1, Ordering::SeqCst) == 1 {
        words.offset.fetch_add(words.step.load(Ordering::SeqCst), Ordering::SeqCst);
    }
    offset
}

fn map() -> *mut Words {
    let zero = (&raw const ZERO).cast_mut();
    // SAFETY: names end with 0, and the file is as long as it is mapped.
    unsafe {
        let path = getenv(c"LEASEHOLD_CLOCK_OFFSET".as_ptr());
        if path.is_null() {
            return zero;
        }
        let file = open(path, O_RDWR);
        if file < 0 {
            return zero;
        }
        let access = PROT_READ | PROT_WRITE;
        let words = mmap(ptr::null_mut(), size_of::<Words>(), access, MAP_SHARED, file, 0);
        close(file);
        if words.addr() == usize::MAX { zero } else { words.cast() }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, time: *mut Timespec) -> c_int {
    // SAFETY: the system call of this name, with what the caller passed.
    let outcome = unsafe { syscall(SYS_CLOCK_GETTIME, c_long::from(clock), time) };
    let ahead = match clock {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE if outcome == 0 => offset(),
        CLOCK_BOOTTIME if outcome == 0 => words().suspended.load(Ordering::SeqCst),
        _ => 0,
    };
    if ahead != 0 {
        // SAFETY: the system has just written there.
        let time = unsafe { &mut *time };
        let micros = time.nanos / 1_000 + ahead.rem_euclid(MICROS);
        time.seconds += ahead.div_euclid(MICROS) + micros / MICROS;
        time.nanos = micros % MICROS * 1_000 + time.nanos % 1_000;
    }
    if outcome == 0 { 0 } else { -1 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut Timeval, _zone: *mut c_void) -> c_int {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: it writes to a place of ours.
    let outcome = unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        // SAFETY: the caller passed a place for the time.
        unsafe { *time = Timeval { seconds: now.seconds, micros: now.nanos / 1_000 } };
    }
    outcome
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut i64) -> i64 {
    let mut now = Timespec { seconds: 0, nanos: 0 };
    // SAFETY: it writes to a place of ours.
    unsafe { clock_gettime(CLOCK_REALTIME, &mut now) };
    if !time.is_null() {
        // SAFETY: the caller passed a place for the time.
        unsafe { *time = now.seconds };
    }
    now.seconds
}
