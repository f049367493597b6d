//! `LOCK.HELP`: the commands, in the style of the server's own HELP.

use super::{ALL, Access, Error, Reply, Spec};

pub static SPEC: Spec = Spec {
    name: c"lock.help",
    summary: c"Returns helpful text about the commands.",
    complexity: c"O(1)",
    since: c"0.1.0",
    history: &[],
    tips: None,
    access: Access::None,
    args: &[],
};

pub fn parse(words: &[&[u8]]) -> Result<(), Error> {
    if let [_] = words { Ok(()) } else { Err(Error::WrongArity) }
}

pub fn answer() -> Reply<'static> {
    let mut lines = vec!["LOCK.<command> [<arg> [value] [opt] ...]. Commands are:".to_owned()];
    for spec in ALL {
        lines.push(spec.usage());
        lines.push(format!("    {}", spec.summary.to_string_lossy()));
    }
    Reply::Lines(lines)
}

#[cfg(test)]
mod tests {
    use super::super::testing::words;
    use super::*;

    #[test]
    fn every_command_has_its_usage_and_its_summary() {
        assert_eq!(parse(&words("lock.help")), Ok(()));
        assert_eq!(parse(&words("lock.help me")), Err(Error::WrongArity));
        let Reply::Lines(lines) = answer() else { panic!("not lines") };
        assert_eq!(lines.len(), 1 + 2 * ALL.len());
        assert!(lines.contains(
            &"LOCK.EXTEND key owner ttl [fence] [ALSO numkeys key [key ...]]".to_owned()
        ));
    }
}
