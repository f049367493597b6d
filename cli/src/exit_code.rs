//! What the program ends with: `docs/cli.md` has the table.

use std::io;
use std::process::ExitCode;

/// Those of the command that was run, and its own: from `sysexits.h` where there is one that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "others decide by it what to do"]
pub(crate) enum Code {
    Done,
    /// Asked whether something is so, and it is not: a lock is held, was released, nothing endangers locks.
    No,
    /// EX_USAGE: the words, a variable or an address have no sense.
    Usage,
    /// EX_UNAVAILABLE: no server that grants locks has answered.
    Unreachable,
    /// EX_SOFTWARE, EX_OSERR: the system refused, or this program has a defect.
    Internal,
    /// EX_TEMPFAIL: others had the lock for as long as one was ready to wait.
    NotObtained,
    /// EX_NOPERM: the server answered with an error.
    Refused,
    /// None of `sysexits.h`: the command was stopped half-way, or its work was not covered to its end.
    Lost,
    /// Of the command; 128 and the number of the signal that ended it.
    OfCommand(u8),
}

impl Code {
    pub(crate) fn of_signal(number: i32) -> Self {
        Self::OfCommand(u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX))
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(match code {
            Code::Done => 0,
            Code::No => 1,
            Code::Usage => 64,
            Code::Unreachable => 69,
            Code::Internal => 70,
            Code::NotObtained => 75,
            Code::Refused => 77,
            Code::Lost => 79,
            Code::OfCommand(code) => code,
        })
    }
}

/// What is said before the end.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, text: text.into() }
    }

    pub(crate) fn of_system(what: &str, error: &io::Error) -> Self {
        Self::new(Code::Internal, format!("{what}: {error}"))
    }
}
