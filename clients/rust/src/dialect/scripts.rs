//! Which scripts a server is known to have.
//!
//! A script is sent in full until the server has run it once, and by its digest from then on. A
//! digest that a server does not know is an error, which it counts.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Acquire,
    Extend,
    Release,
    ReleaseAny,
    Raise,
}

/// Those that one server has run.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    known: AtomicU8,
}

impl Scripts {
    pub(crate) fn knows(&self, script: Script) -> bool {
        self.known.load(Relaxed) & bit(script) != 0
    }

    pub(crate) fn learn(&self, script: Script) {
        self.known.fetch_or(bit(script), Relaxed);
    }

    /// The server has forgotten all of them.
    pub(crate) fn forget(&self) {
        self.known.store(0, Relaxed);
    }
}

fn bit(script: Script) -> u8 {
    match script {
        Script::Acquire => 1,
        Script::Extend => 2,
        Script::Release => 4,
        Script::ReleaseAny => 8,
        Script::Raise => 16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_known_once_it_was_run_until_the_server_forgets() {
        let scripts = Scripts::default();
        scripts.learn(Script::Release);
        assert!(scripts.knows(Script::Release));
        for other in [Script::Acquire, Script::Extend, Script::ReleaseAny, Script::Raise] {
            assert!(!scripts.knows(other), "{other:?}");
        }
        scripts.forget();
        assert!(!scripts.knows(Script::Release));
    }
}
