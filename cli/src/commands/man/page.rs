//! One page: the contents of the help, in the sections of a manual.

use super::variables::{HEEDED, SET, Variable};
use crate::exit_code::MEANINGS;
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

/// `leasehold`, or `leasehold-run`.
pub(super) fn name(program: &Command, command: &Command) -> String {
    if command.get_name() == program.get_name() {
        return program.get_name().to_owned();
    }
    format!("{}-{}", program.get_name(), command.get_name())
}

pub(super) fn page(program: &Command, command: &Command) -> String {
    let is_program = command.get_name() == program.get_name();
    let is_told = |of: &crate::exit_code::Of| is_program || of.includes(command.get_name());
    // The generated synopsis would list each option and leave out the `--`.
    let usage = command.clone().render_usage().to_string();
    let shown = command.clone().override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let man = Man::new(shown)
        .title(name(program, command).to_uppercase())
        // No date, because the day of generation says nothing. An empty string would leave the
        // field out.
        .date(" ")
        .source(format!("leasehold {}", env!("CARGO_PKG_VERSION")))
        .manual("Leasehold");

    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = man.render_title(&mut text);
    let _ = man.render_name_section(&mut text);
    let _ = man.render_synopsis_section(&mut text);
    let _ = man.render_description_section(&mut text);
    if is_program {
        let _ = man.render_subcommands_section(&mut text);
    }
    let _ = man.render_options_section(&mut text);

    let mut rest = Roff::new();
    rest.control("SH", ["EXIT STATUS"]);
    if is_program {
        rest.text([roman(
            "run and elect end with the code of their command, or with 128 and the number of the signal that ended it. \
             The codes of leasehold itself are:",
        )]);
    } else if matches!(command.get_name(), "run" | "elect") {
        rest.text([roman(
            "That of the command, or 128 and the number of the signal that ended it. The codes of leasehold itself are:",
        )]);
    } else {
        define(&mut rest, "0", "done");
    }
    for meaning in MEANINGS.iter().filter(|meaning| is_told(&meaning.of)) {
        define(&mut rest, &meaning.code.to_string(), meaning.text);
    }
    variables(&mut rest, "ENVIRONMENT", HEEDED.iter().filter(|variable| is_told(&variable.of)));
    let of_command = "ENVIRONMENT OF THE COMMAND";
    variables(&mut rest, of_command, SET.iter().filter(|variable| is_told(&variable.of)));
    examples(&mut rest, command);
    see_also(&mut rest, program, command);
    let page = format!("{}{}", String::from_utf8_lossy(&text), rest.to_roff());
    // On an ASCII terminal, man would leave this character out and warn.
    page.replace('…', "...")
}

fn define(page: &mut Roff, term: &str, text: &str) {
    page.control("TP", []).text([bold(term)]).text([roman(text)]);
}

fn variables<'a>(page: &mut Roff, title: &str, told: impl Iterator<Item = &'a Variable>) {
    let mut told = told.peekable();
    if told.peek().is_some() {
        page.control("SH", [title]);
    }
    for variable in told {
        define(page, variable.name, variable.text);
    }
}

/// The examples are the end of the help.
fn examples(page: &mut Roff, command: &Command) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let Some((_, lines)) = help.split_once("Examples:\n") else { return };
    page.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in lines.lines() {
        page.text([roman(line.trim_start())]);
    }
    page.control("fi", []);
}

fn see_also(page: &mut Roff, program: &Command, command: &Command) {
    let others = std::iter::once(program).chain(program.get_subcommands());
    let others = others.filter(|other| other.get_name() != command.get_name());
    let names = others.map(|other| name(program, other));
    let names = names.chain(["flock", "redis-cli", "valkey-cli"].map(str::to_owned));
    let mut text: Vec<Inline> = Vec::new();
    for name in names {
        if !text.is_empty() {
            text.push(roman(", "));
        }
        text.extend([bold(name), roman("(1)")]);
    }
    page.control("SH", ["SEE ALSO"]).text(text);
}
