//! The exit codes of the program. `docs/cli.md` has the table.

use std::io;
use std::process::ExitCode;

/// The exit codes of the command, and the program's own, from `sysexits.h` where one fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "others decide by it what to do"]
pub(crate) enum Code {
    Done,
    /// The answer to a question is no: no lock is held, none was released, or something endangers locks.
    No,
    /// EX_USAGE: an argument, a variable or an address is invalid.
    Usage,
    /// EX_UNAVAILABLE: no server that grants locks has answered.
    Unreachable,
    /// EX_SOFTWARE, EX_OSERR: the system refused, or this program has a defect.
    Internal,
    /// EX_TEMPFAIL: others had the lock until the patience ended.
    NotObtained,
    /// EX_NOPERM: the server answered with an error.
    Refused,
    /// Not in `sysexits.h`: the command was stopped half-way, or the lock was lost before it ended.
    Lost,
    /// The exit code of the command, or the code that a shell would give in its place.
    OfCommand(u8),
    /// 128 and the number of the signal that ended the command, or this program.
    OfSignal(u8),
}

impl Code {
    pub(crate) fn of_signal(number: i32) -> Self {
        Self::OfSignal(with_signal(number))
    }

    /// An ordinary exit code for `top`, which a person ends with a key: the shell goes on with its script.
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

/// The subcommands that something applies to.
pub(crate) enum Of {
    All,
    Asking,
    These(&'static [&'static str]),
}

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

/// What a code means, in the words of the help and the manual.
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

/// The exit code, and the message before it.
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
