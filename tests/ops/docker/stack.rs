//! A compose file, whose services run here as programs, each at an address of its own that the machine has for itself.

use super::container::{Container, at};
use crate::{text, words, yaml};
use std::collections::BTreeMap;
use testkit::{Seed, eventually, free_port_of_a_node, until};
use yaml_rust2::Yaml;

pub(super) struct Stack {
    file: Yaml,
    /// What stands for the first three parts of the addresses on the page.
    network: (String, String),
    /// What stands for 6379 and 26379: elsewhere on this machine they may be taken on every address.
    ports: [u16; 2],
    /// Addresses that the page has by example, and what they are this time.
    called: BTreeMap<String, String>,
    containers: BTreeMap<String, Container>,
}

impl Stack {
    fn read(name: &str) -> Self {
        let file = yaml(&format!("docker/{name}")).remove(0);
        let subnet = file["networks"]["locks"]["ipam"]["config"][0]["subnet"].as_str();
        let page = subnet.map(|subnet| subnet.strip_suffix("0/24").unwrap().to_owned());
        let mut seed = Seed::announced();
        let here = format!("127.{}.{}.", 64 + seed.below(128), 1 + seed.below(254));
        let network = (page.unwrap_or_else(|| "none".into()), here);
        let ports = [(); 2].map(|()| free_port_of_a_node());
        Self { file, network, ports, called: BTreeMap::new(), containers: BTreeMap::new() }
    }

    fn services(&self) -> Vec<&str> {
        let services = self.file["services"].as_hash().expect("no services");
        services.keys().map(|name| name.as_str().unwrap()).collect()
    }

    /// As `docker compose up` does: each when those that it depends on are healthy.
    pub(super) fn start(name: &str) -> Self {
        let mut stack = Self::read(name);
        let services: Vec<_> = stack.services().into_iter().map(str::to_owned).collect();
        for service in &services {
            let needs = stack.service(service)["depends_on"].clone();
            for (needed, how) in needs.as_hash().into_iter().flatten() {
                assert_eq!(how["condition"].as_str(), Some("service_healthy"));
                stack.wait_until_healthy(needed.as_str().unwrap());
            }
            stack.containers.insert(service.clone(), Container::new());
            stack.run(service);
        }
        for service in services {
            if stack.is_checked(&service) {
                stack.wait_until_healthy(&service);
            }
        }
        stack
    }

    fn service(&self, name: &str) -> &Yaml {
        let service = &self.file["services"][name];
        assert!(!service.is_badvalue(), "there is no {name}");
        service
    }

    fn is_checked(&self, name: &str) -> bool {
        self.service(name)["healthcheck"]["disable"].as_bool() != Some(true)
    }

    fn address(&self, name: &str) -> String {
        let address = &self.service(name)["networks"]["locks"]["ipv4_address"];
        self.here(address.as_str().unwrap())
    }

    fn here(&self, text: &str) -> String {
        let called = |text: String, (page, here): (&String, &String)| text.replace(page, here);
        let text = self.called.iter().fold(text.to_owned(), called);
        let text = text.replace(&self.network.0, &self.network.1);
        let [server, sentinel] = self.ports.map(|port| port.to_string());
        text.replace("26379", &sentinel).replace("6379", &server)
    }

    /// Runs what its command says.
    fn run(&mut self, name: &str) {
        let command = &self.service(name)["command"];
        let words: Vec<_> = words(command).iter().map(|word| self.here(word)).collect();
        let address = self.address(name);
        let config = self.here(&text("docker/sentinel.conf"));
        let port = self.here("6379");
        let container = self.containers.get_mut(name).unwrap();
        // Only its file tells a sentinel where it is.
        let mounted = container.write(
            "sentinel.conf",
            &format!("{config}bind {address}\nsentinel announce-ip {address}\n"),
        );
        let words: Vec<_> =
            words.iter().map(|word| word.replace("/etc/sentinel.conf", &mounted)).collect();
        let mut words: Vec<_> = words.iter().map(String::as_str).collect();
        let script;
        let place = [at(&address), vec!["--port", &port]].concat();
        if words[0].starts_with('-') {
            words.extend(place);
        } else if words.last().unwrap().contains("server.conf") {
            script = format!("{} {}", words.pop().unwrap(), place.join(" "));
            words.push(&script);
        }
        container.start(&words);
    }

    fn wait_until_healthy(&mut self, name: &str) {
        let address = self.address(name);
        let test = words(&self.service(name)["healthcheck"]["test"]);
        let test: Vec<_> = test.iter().map(|word| self.here(word)).collect();
        let port = self.here("6379");
        let container = self.containers.get_mut(name).unwrap();
        eventually(&format!("{name} is healthy"), || {
            container.look();
            match &test[..] {
                [] => container.check("alive", &["-h", &address, "-p", &port], ""),
                [_, program, cli, rest @ ..] => {
                    let rest: Vec<_> = rest.iter().map(String::as_str).collect();
                    let words = [&[cli, "-h", &*address], &rest[..]].concat();
                    let (_, told) = container.call(program, &words);
                    if told == "PONG" { Ok(()) } else { Err(told) }
                }
                other => panic!("{other:?}"),
            }
        });
    }

    /// Carries out what stands on the page after `docker compose`; what is printed, with the addresses of the page.
    #[track_caller]
    pub(super) fn step(&mut self, step: &str) -> String {
        assert_on_page(step);
        self.carry_out(step)
    }

    /// The same again and again.
    #[track_caller]
    pub(super) fn eventually(&mut self, step: &str, fits: impl Fn(&str) -> bool) -> String {
        assert_on_page(step);
        until(step, || self.carry_out(step), |told| fits(told))
    }

    fn carry_out(&mut self, step: &str) -> String {
        let words: Vec<_> = step.split(' ').collect();
        match words[..] {
            ["kill", name] => self.containers.get_mut(name).unwrap().kill(),
            ["start", name] => self.run(name),
            ["restart", name] => {
                self.containers.get_mut(name).unwrap().kill();
                self.run(name);
            }
            ["exec", name, "leasehold-entrypoint", "cli", ref words @ ..] => {
                let words: Vec<_> = words.iter().map(|word| self.here(word)).collect();
                let words: Vec<_> = words.iter().map(String::as_str).collect();
                // Within a container, the usual address and port are enough. The last of two counts.
                let (address, port) = (self.address(name), self.here("6379"));
                let usual = ["cli", "-h", &address, "-p", &port];
                let told = self.containers[name]
                    .call("leasehold-entrypoint", &[&usual, &words[..]].concat())
                    .1;
                return told.replace(&self.network.1, &self.network.0);
            }
            _ => panic!("what is {step}?"),
        }
        String::new()
    }

    /// What the page calls so is this one.
    pub(super) fn call(&mut self, page: &str, chosen: &str) {
        self.called.insert(page.to_owned(), chosen.to_owned());
    }
}

#[track_caller]
fn assert_on_page(step: &str) {
    let line = format!("docker compose {step}");
    let page = text("docker/README.md");
    assert!(page.lines().any(|said| said == line), "docker/README.md does not say: {line}");
}
