//! A module that calls the commands of other modules, and interferes with other calls. Tests load it into a server
//! beside Leasehold.
//!
//! ```text
//!   CALLER.CALL command [arg …]     calls a command and passes its reply on
//!   CALLER.BEGIN command [arg …]    calls a command that may block (7.2 on): the reply, or
//!                                   PROMISED
//!   CALLER.OUTCOME                  the reply to that command: its number, -1 for nil, -2 for an error;
//!                                   nil until then
//!   CALLER.HEARD                    the key events of modules so far, a line for each
//!   CALLER.BLOCK [arg …]            blocks its client for a moment, without a flag that says so, and
//!                                   replies BLOCKED
//! ```
//!
//! Loaded with an argument, it does one thing more:
//!
//! ```text
//!   fill              uses up the server's categories of the ACL (7.4 on)
//!   replace COMMAND   replaces that command, sent by a client or called by a module, by CALLER.BLOCK
//!   ask COMMAND       asks the server for something whenever that command is about to be executed
//!   hold              delays the reply to each command that changes a hash, as a search module does
//!                     while it indexes the hash
//! ```
//!
//! Modules can look up the server's functions only by name, through the first word of the context. The types below
//! are those of `redismodule.h`.

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

/// The class of the key events that modules publish.
const OF_MODULES: c_int = 1 << 13;

const OF_HASHES: c_int = 1 << 6;

const IN_SCRIPT: c_int = 1;
const IN_TRANSACTION: c_int = 1 << 1;
const REPLICATED: c_int = 1 << 12;
const LOADING: c_int = 1 << 13;

/// How long a client is blocked, in milliseconds.
const MOMENT: c_longlong = 20;

const NOT_YET: i64 = i64::MIN;

static GET_API: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static PROMISED: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static OUTCOME: AtomicI64 = AtomicI64::new(NOT_YET);
static HEARD: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static REPLACED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

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
type RegisterFilter = unsafe extern "C" fn(Ctx, Filter, c_int) -> *mut c_void;
type Filter = unsafe extern "C" fn(*mut c_void);
type FilterGet = unsafe extern "C" fn(*mut c_void, c_int) -> Str;
type FilterReplace = unsafe extern "C" fn(*mut c_void, c_int, Str) -> c_int;
type CreateString = unsafe extern "C" fn(Ctx, *const c_char, usize) -> Str;
type GetContext = unsafe extern "C" fn(*mut c_void) -> Ctx;
type FreeContext = unsafe extern "C" fn(Ctx);
type FreeData = unsafe extern "C" fn(Ctx, *mut c_void);
type BlockClient = unsafe extern "C" fn(
    Ctx,
    Option<Command>,
    Option<Command>,
    Option<FreeData>,
    c_longlong,
) -> *mut c_void;
type Unblock = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
type ClientId = unsafe extern "C" fn(Ctx) -> u64;
type Ring = unsafe extern "C" fn(Ctx, *mut c_void);
type CreateTimer = unsafe extern "C" fn(Ctx, c_longlong, Ring, *mut c_void) -> u64;
type WhenDone = unsafe extern "C" fn(Reply, Done, *mut c_void);

/// Looks up a function of the server.
macro_rules! api {
    ($name:literal as $kind:ty) => {
        transmute::<*mut c_void, $kind>(find(concat!("RedisModule_", $name, "\0")))
    };
}

unsafe fn find(name: &str) -> *mut c_void {
    let mut function = null_mut();
    // SAFETY: the server's own look-up, by a name that ends with 0.
    unsafe {
        let get_api = transmute::<*mut c_void, GetApi>(GET_API.load(Ordering::Relaxed));
        get_api(name.as_ptr().cast(), &raw mut function);
    }
    assert!(!function.is_null(), "the server has no {name}");
    function
}

#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    // SAFETY: the first word of a context is the function by which modules look up the others.
    GET_API.store(unsafe { *ctx.cast::<*mut c_void>() }, Ordering::Relaxed);
    let commands: [(&CStr, Command); 5] = [
        (c"caller.call", call),
        (c"caller.begin", begin),
        (c"caller.outcome", outcome),
        (c"caller.heard", heard),
        (c"caller.block", block),
    ];
    // SAFETY: the server passed this context and so many words, and asks for these calls while it loads a module.
    unsafe {
        api!("SetModuleAttribs" as SetAttribs)(ctx, c"caller".as_ptr(), 1, 1);
        match arguments(argv, argc)[..] {
            [b"fill"] => fill(ctx),
            [b"replace", command] => replace(ctx, command, filter),
            [b"ask", command] => replace(ctx, command, ask),
            [b"hold"] => drop(api!("SubscribeToKeyspaceEvents" as Subscribe)(ctx, OF_HASHES, hold)),
            _ => {}
        }
        api!("SubscribeToKeyspaceEvents" as Subscribe)(ctx, OF_MODULES, hear);
        let create = api!("CreateCommand" as Create);
        let created = commands.into_iter().all(|(name, command)| {
            create(ctx, name.as_ptr(), command, c"write".as_ptr(), 0, 0, 0) == OK
        });
        if created { OK } else { ERR }
    }
}

unsafe fn fill(ctx: Ctx) {
    // SAFETY: the server passed this context, and the name ends with 0.
    let add = unsafe { api!("AddACLCategory" as AddCategory) };
    let name = |number: u32| CString::new(format!("caller{number}")).unwrap();
    // SAFETY: the server passed this context, and the name ends with 0.
    assert!((0..).map(name).take(100).any(|name| unsafe { add(ctx, name.as_ptr()) } == ERR));
}

unsafe fn replace(ctx: Ctx, command: &[u8], filter: Filter) {
    *REPLACED.lock().unwrap() = command.to_vec();
    // SAFETY: the server passed this context, and keeps the filter as long as the module.
    unsafe { api!("RegisterCommandFilter" as RegisterFilter)(ctx, filter, 0) };
}

unsafe extern "C" fn filter(filtered: *mut c_void) {
    // SAFETY: the server passed what is passed on to its functions.
    unsafe {
        let name = api!("CommandFilterArgGet" as FilterGet)(filtered, 0);
        if bytes(name).eq_ignore_ascii_case(&REPLACED.lock().unwrap()) {
            let block = c"caller.block";
            let string = api!("CreateString" as CreateString)(
                null_mut(),
                block.as_ptr(),
                block.count_bytes(),
            );
            api!("CommandFilterArgReplace" as FilterReplace)(filtered, 0, string);
        }
    }
}

unsafe extern "C" fn ask(filtered: *mut c_void) {
    // SAFETY: a context of our own, and a reply of our own, each freed once.
    unsafe {
        let name = api!("CommandFilterArgGet" as FilterGet)(filtered, 0);
        if bytes(name).eq_ignore_ascii_case(&REPLACED.lock().unwrap()) {
            let ctx = api!("GetThreadSafeContext" as GetContext)(null_mut());
            let reply = api!("Call" as Call)(ctx, c"ECHO".as_ptr(), c"c".as_ptr(), c"hello".as_ptr());
            if !reply.is_null() {
                api!("FreeCallReply" as Free)(reply);
            }
            api!("FreeThreadSafeContext" as FreeContext)(ctx);
        }
    }
}

unsafe extern "C" fn block(ctx: Ctx, _argv: *mut Str, _argc: c_int) -> c_int {
    // SAFETY: the server passed what is passed on to its functions.
    unsafe {
        api!("BlockClient" as BlockClient)(ctx, None, Some(blocked), None, MOMENT);
    }
    OK
}

unsafe extern "C" fn blocked(ctx: Ctx, _argv: *mut Str, _argc: c_int) -> c_int {
    // SAFETY: the server passed what is passed on to its functions.
    unsafe { api!("ReplyWithSimpleString" as Text)(ctx, c"BLOCKED".as_ptr()) }
}

unsafe extern "C" fn hold(ctx: Ctx, _class: c_int, _event: *const c_char, _key: Str) -> c_int {
    // SAFETY: the server passed what is passed on to its functions.
    unsafe {
        let denies = api!("GetContextFlags" as Kind)(ctx)
            & (IN_SCRIPT | IN_TRANSACTION | REPLICATED | LOADING)
            != 0;
        if !denies && api!("GetClientId" as ClientId)(ctx) != 0 {
            let client = api!("BlockClient" as BlockClient)(ctx, None, None, None, 0);
            if !client.is_null() {
                api!("CreateTimer" as CreateTimer)(ctx, MOMENT, let_go, client);
            }
        }
    }
    OK
}

unsafe extern "C" fn let_go(_ctx: Ctx, client: *mut c_void) {
    // SAFETY: `hold` has blocked this client, and nobody else lets it go.
    unsafe { api!("UnblockClient" as Unblock)(client, null_mut()) };
}

unsafe extern "C" fn call(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    // SAFETY: the server passed what is passed on to its functions.
    unsafe {
        let reply = called(ctx, argv, argc, c"v");
        pass_on(ctx, reply)
    }
}

unsafe extern "C" fn begin(ctx: Ctx, argv: *mut Str, argc: c_int) -> c_int {
    // SAFETY: what the server passed is passed on, and a promise is kept until it is fulfilled.
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
    // SAFETY: the server passes the outcome of the promise, which is freed once.
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
    // SAFETY: the server passed what is passed on to its functions.
    unsafe {
        match OUTCOME.load(Ordering::Relaxed) {
            NOT_YET => api!("ReplyWithNull" as Nil)(ctx),
            outcome => api!("ReplyWithLongLong" as Number)(ctx, outcome),
        }
    }
}

unsafe extern "C" fn hear(_ctx: Ctx, _class: c_int, event: *const c_char, key: Str) -> c_int {
    // SAFETY: the server passes a text that ends with 0, and a key.
    let (event, key) = unsafe { (CStr::from_ptr(event).to_bytes(), bytes(key)) };
    HEARD.lock().unwrap().extend([event, b" ", key, b"\n"].concat());
    OK
}

unsafe extern "C" fn heard(ctx: Ctx, _argv: *mut Str, _argc: c_int) -> c_int {
    let heard = HEARD.lock().unwrap();
    // SAFETY: the bytes outlive the call, which copies them.
    unsafe { api!("ReplyWithStringBuffer" as Buffer)(ctx, heard.as_ptr().cast(), heard.len()) }
}

unsafe fn arguments<'a>(argv: *mut Str, argc: c_int) -> Vec<&'a [u8]> {
    // SAFETY: the server passed so many words.
    (0..usize::try_from(argc).unwrap()).map(|at| unsafe { bytes(*argv.add(at)) }).collect()
}

unsafe fn bytes<'a>(string: Str) -> &'a [u8] {
    let mut len = 0;
    // SAFETY: the server's string outlives the call to which it belongs, and is as long as it says.
    unsafe {
        let start = api!("StringPtrLen" as Bytes)(string, &raw mut len);
        slice::from_raw_parts(start.cast(), len)
    }
}

/// Calls the command that follows the first word.
unsafe fn called(ctx: Ctx, argv: *mut Str, argc: c_int, format: &CStr) -> Reply {
    // SAFETY: the server passed so many words, of which the second is a command; the format fits what follows.
    unsafe {
        let words = slice::from_raw_parts(argv, usize::try_from(argc).unwrap());
        let name = api!("StringPtrLen" as Bytes)(words[1], null_mut());
        let rest = &words[2..];
        api!("Call" as Call)(ctx, name, format.as_ptr(), rest.as_ptr(), rest.len())
    }
}

unsafe fn pass_on(ctx: Ctx, reply: Reply) -> c_int {
    // SAFETY: the reply is ours until it is freed, and is not used afterwards.
    unsafe {
        if reply.is_null() {
            return api!("ReplyWithError" as Text)(ctx, c"ERR the call was refused".as_ptr());
        }
        let outcome = api!("ReplyWithCallReply" as PassOn)(ctx, reply);
        api!("FreeCallReply" as Free)(reply);
        outcome
    }
}
