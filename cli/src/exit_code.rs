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
    /// Of the command, or as it would be of one.
    OfCommand(u8),
    /// 128 and the number of the signal that ended the command, or this program.
    OfSignal(u8),
}

impl Code {
    pub(crate) fn of_signal(number: i32) -> Self {
        Self::OfSignal(with_signal(number))
    }

    /// The same for what a person ends by a key: a shell goes on.
    pub(crate) fn that_tells_of(number: i32) -> Self {
        Self::OfCommand(with_signal(number))
    }
}

fn with_signal(number: i32) -> u8 {
    u8::try_from(number.saturating_add(128)).unwrap_or(u8::MAX)
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
            Code::OfCommand(code) | Code::OfSignal(code) => code,
        })
    }
}

/// Of which subcommands something is so.
pub(crate) enum Of {
    All,
    /// Of those that ask servers.
    Asking,
    These(&'static [&'static str]),
}

/// Those that ask no server.
const ASKING_NONE: [&str; 2] = ["completions", "man"];

impl Of {
    pub(crate) fn includes(&self, command: &str) -> bool {
        match self {
            Self::All => true,
            Self::Asking => !ASKING_NONE.contains(&command),
            Self::These(names) => names.contains(&command),
        }
    }
}

/// What a code means, as the help and the manual say it.
pub(crate) struct Meaning {
    pub(crate) code: u8,
    pub(crate) of: Of,
    pub(crate) text: &'static str,
}

pub(crate) const MEANINGS: [Meaning; 9] = [
    Meaning {
        code: 1,
        of: Of::These(&["show", "release", "doctor"]),
        text: "no: not held, not released, or something endangers locks (show, release, doctor)",
    },
    Meaning {
        code: 64,
        of: Of::All,
        text: "usage: the words, a variable or an address have no sense",
    },
    Meaning {
        code: 69,
        of: Of::Asking,
        text: "no server that grants locks has answered, or too few replicas",
    },
    Meaning {
        code: 70,
        of: Of::All,
        text: "the system refused something, or this program has a defect",
    },
    Meaning {
        code: 75,
        of: Of::These(&["run", "wait"]),
        text: "not obtained: others had the lock for as long as --wait said",
    },
    Meaning { code: 77, of: Of::Asking, text: "the server refused, as its message says" },
    Meaning {
        code: 79,
        of: Of::These(&["run", "elect"]),
        text: "the lock was lost, and the command was ended, or its end was not covered",
    },
    Meaning { code: 126, of: Of::These(&["run", "elect"]), text: "the command cannot be run" },
    Meaning { code: 127, of: Of::These(&["run", "elect"]), text: "there is no such command" },
];

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
