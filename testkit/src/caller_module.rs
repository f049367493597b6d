//! A module that calls the commands of other modules. It is loaded into a server beside Leasehold.
//!
//! ```text
//!   CALLER.CALL command [arg …]    calls a command and passes its reply on
//!   CALLER.BEGIN command [arg …]    calls a command that may block (7.2 on): the reply, or
//!                                   PROMISED
//!   CALLER.OUTCOME                  how that ended: the number, -1 for nil, -2 for an error; nil
//!                                   until then
//!   CALLER.HEARD                    the key events of modules so far, a line for each
//! ```
//!
//! Loaded with an argument, it takes all the room that there is for categories of the ACL (7.4 on).
//!
//! Modules look up the server's functions by name, through the first word of the context. There is
//! no other way.

use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::slice;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

type Ctx = *mut c_void;
type Str = *mut c_void;
type Reply = *mut c_void;

const OK: c_int = 0;
const ERR: c_int = 1;
const INTEGER: c_int = 2;
const NULL: c_int = 4;
const PROMISE: c_int = 12;

/// The class of key events that modules publish.
const OF_MODULES: c_int = 1 << 13;

const NOT_YET: i64 = i64::MIN;

static GET_API: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static PROMISED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static OUTCOME: AtomicI64 = AtomicI64::new(NOT_YET);
static HEARD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

type GetApi = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type SetAttribs = unsafe extern "C" fn(Ctx, *const c_char, c_int, c_int) -> c_int;
type AddCategory = unsafe extern "C" fn(Ctx, *const c_char) -> c_int;
type Command = unsafe extern "C" fn(Ctx, *mut Str, c_int) -> c_int;
type Create =
    unsafe extern "C" fn(Ctx, *const c_char, Command, *const c_char, c_int, c_int, c_int) -> c_int;
type Bytes = unsafe extern "C" fn(Str, *mut usize) -> *const c_char;
type Call = unsafe extern "C" fn(Ctx, *const c_char, *const c_char, ...) -> Reply;
type Text = unsafe extern "C" fn(Ctx, *const c_char) -> c_int;
type Number = unsafe extern "C" fn(Ctx, c_longlong) -> c_int;
type Nil = unsafe extern "C" fn(Ctx) -> c_int;
type PassOn = unsafe extern "C" fn(Ctx, Reply) -> c_int;
type Free = unsafe extern "C" fn(Reply);
type Kind = unsafe extern "C" fn(Reply) -> c_int;
type Integer = unsafe extern "C" fn(Reply) -> c_longlong;
type Done = unsafe extern "C" fn(Ctx, Reply, *mut c_void);
type Listen = unsafe extern "C" fn(Ctx, c_int, *const c_char, Str) -> c_int;
type Subscribe = unsafe extern "C" fn(Ctx, c_int, Listen) -> c_int;
type Buffer = unsafe extern "C" fn(Ctx, *const c_char, usize) -> c_int;
type WhenDone = unsafe extern "C" fn(Reply, Done, *mut c_void);

/// Looks up a function of the server.
macro_rules! api {
    ($name:literal as $kind:ty) => {
        transmute::<*mut c_void, $kind>(find(concat!("RedisModule_", $name, "\0")))
    };
}

unsafe fn find(name: &str) -> *mut c_void {
    let mut function = null_mut();
    unsafe {
        let get_api = transmute::<*mut c_void, GetApi>(GET_API.load(Ordering::Relaxed));
        get_api(name.as_ptr().cast(), &raw mut function);
    }
    assert!(!function.is_null(), "the server has no {name}");
    function
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Ctx, _argv: *mut Str, argc: c_int) -> c_int {
    GET_API.store(unsafe { *ctx.cast::<*mut c_void>() }, Ordering::Relaxed);
    let commands: [(&CStr, Command); 4] = [
        (c"caller.call", call),
        (c"caller.begin", begin),
        (c"caller.outcome", outcome),
        (c"caller.heard", heard),
    ];
    unsafe {
        api!("SetModuleAttribs" as SetAttribs)(ctx, c"caller".as_ptr(), 1, 1);
        if argc > 0 {
            let add = api!("AddACLCategory" as AddCategory);
            let name = |number: u32| CString::new(format!("caller{number}")).unwrap();
            assert!((0..).map(name).take(100).any(|name| add(ctx, name.as_ptr()) == ERR));
        }
        api!("SubscribeToKeyspaceEvents" as Subscribe)(ctx, OF_MODULES, hear);
        let create = api!("CreateCommand" as Create);
        let created = commands.into_iter().all(|(name, command)| {
            create(ctx, name.as_ptr(), command, c"write".as_ptr(), 0, 0, 0) == OK
        });
        if created { OK } else { ERR }
    }
}

unsafe extern "C" fn call(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    unsafe {
        let reply = called(ctx, argv, argc, c"v");
        pass_on(ctx, reply)
    }
}

unsafe extern "C" fn begin(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    unsafe {
        let reply = called(ctx, argv, argc, c"vK");
        if reply.is_null() || api!("CallReplyType" as Kind)(reply) != PROMISE {
            return pass_on(ctx, reply);
        }
        OUTCOME.store(NOT_YET, Ordering::Relaxed);
        PROMISED.store(reply, Ordering::Relaxed);
        api!("CallReplyPromiseSetUnblockHandler" as WhenDone)(reply, done, null_mut());
        api!("ReplyWithSimpleString" as Text)(ctx, c"PROMISED".as_ptr())
    }
}

unsafe extern "C" fn done(_ctx: Ctx, reply: Reply, _data: *mut c_void) {
    unsafe {
        let outcome = match api!("CallReplyType" as Kind)(reply) {
            INTEGER => api!("CallReplyInteger" as Integer)(reply),
            NULL => -1,
            _ => -2,
        };
        OUTCOME.store(outcome, Ordering::Relaxed);
        api!("FreeCallReply" as Free)(PROMISED.swap(null_mut(), Ordering::Relaxed));
    }
}

unsafe extern "C" fn outcome(ctx: Ctx, _argv: *mut Str, _argc: c_int) -> c_int {
    unsafe {
        match OUTCOME.load(Ordering::Relaxed) {
            NOT_YET => api!("ReplyWithNull" as Nil)(ctx),
            outcome => api!("ReplyWithLongLong" as Number)(ctx, outcome),
        }
    }
}

unsafe extern "C" fn hear(_ctx: Ctx, _class: c_int, event: *const c_char, key: Str) -> c_int {
    let mut len = 0;
    let (event, key) = unsafe {
        let bytes = api!("StringPtrLen" as Bytes)(key, &raw mut len);
        (CStr::from_ptr(event).to_bytes(), slice::from_raw_parts(bytes.cast(), len))
    };
    HEARD.lock().unwrap().extend([event, b" ", key, b"\n"].concat());
    OK
}

unsafe extern "C" fn heard(ctx: Ctx, _argv: *mut Str, _argc: c_int) -> c_int {
    let heard = HEARD.lock().unwrap();
    unsafe { api!("ReplyWithStringBuffer" as Buffer)(ctx, heard.as_ptr().cast(), heard.len()) }
}

/// Calls the command in the words behind the first.
unsafe fn called(ctx: Ctx, argv: *mut Str, argc: c_int, format: &CStr) -> Reply {
    unsafe {
        let words = slice::from_raw_parts(argv, usize::try_from(argc).unwrap());
        let name = api!("StringPtrLen" as Bytes)(words[1], null_mut());
        let rest = &words[2..];
        api!("Call" as Call)(ctx, name, format.as_ptr(), rest.as_ptr(), rest.len())
    }
}

unsafe fn pass_on(ctx: Ctx, reply: Reply) -> c_int {
    unsafe {
        if reply.is_null() {
            return api!("ReplyWithError" as Text)(ctx, c"ERR the call was refused".as_ptr());
        }
        let outcome = api!("ReplyWithCallReply" as PassOn)(ctx, reply);
        api!("FreeCallReply" as Free)(reply);
        outcome
    }
}
