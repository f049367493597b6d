//! What the command line says.

use crate::clients::{self, Client};
use crate::scenarios::{Scenario, Speed};
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct Options {
    all: bool,
    pub(crate) only_list: bool,
    /// Parts of names.
    scenarios: Vec<String>,
    pub(crate) clients: Vec<Client>,
    pub(crate) table: Option<PathBuf>,
    pub(crate) rounds: usize,
    pub(crate) threads: usize,
}

impl Options {
    pub(crate) fn read(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            all: false,
            only_list: false,
            scenarios: Vec::new(),
            clients: Vec::new(),
            table: None,
            rounds: 1,
            threads: 4,
        };
        let mut names = Vec::new();
        while let Some(word) = words.next() {
            let mut next = || words.next().ok_or(format!("{word} needs a word behind it"));
            match word.as_str() {
                "--all" => options.all = true,
                "--list" => options.only_list = true,
                "--scenario" => options.scenarios.push(next()?),
                "--client" => names.push(next()?),
                "--adapter" => options.clients.push(clients::given(&next()?)),
                "--table" => options.table = Some(next()?.into()),
                "--rounds" => options.rounds = whole(&next()?)?,
                "--threads" | "--test-threads" => options.threads = whole(&next()?)?,
                // As the other tests of a run are given.
                "--nocapture" | "--no-capture" | "--quiet" | "-q" => {}
                other => return Err(format!("{other} is not known: see src/main.rs")),
            }
        }
        // Whoever brings a client wants to know about that one, unless others are named.
        if options.clients.is_empty() || !names.is_empty() {
            let ours = clients::ours();
            if let Some(name) = names.iter().find(|name| ours.iter().all(|one| one.name != **name))
            {
                return Err(format!("there is no client {name}"));
            }
            let wanted = |one: &Client| names.is_empty() || names.contains(&one.name);
            options.clients.splice(0..0, ours.into_iter().filter(wanted));
        }
        Ok(options)
    }

    pub(crate) fn takes(&self, scenario: &Scenario) -> bool {
        let is_named = self.scenarios.iter().any(|part| scenario.name.contains(part.as_str()));
        let is_in_time = self.all || scenario.speed == Speed::Quick;
        if self.scenarios.is_empty() { is_in_time } else { is_named }
    }
}

fn whole(word: &str) -> Result<usize, String> {
    word.parse().ok().filter(|number| *number > 0).ok_or(format!("{word} is no number"))
}
