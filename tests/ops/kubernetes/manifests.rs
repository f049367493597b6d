//! What stands in the manifests: nothing in them is restarted for what a restart cannot mend, nothing runs as root, and what
//! they repeat of other files is the same there.

use super::text;
use crate::ROOT;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use testkit::announce;
use yaml_rust2::{Yaml, YamlLoader};

fn parsed(name: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every file that ends so, by its path from the root.
fn files(ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    for folder in fs::read_dir(Path::new(ROOT).join("kubernetes")).unwrap() {
        let folder = folder.unwrap().path();
        for file in fs::read_dir(&folder).unwrap() {
            let file = file.unwrap().path();
            let name = file.strip_prefix(ROOT).unwrap().to_str().unwrap().to_owned();
            if name.ends_with(ending) {
                found.push(name);
            }
        }
    }
    found.sort();
    found
}

fn stateful_sets() -> Vec<(String, Yaml)> {
    let is_one = |document: &Yaml| document["kind"].as_str() == Some("StatefulSet");
    let sets = files(".yaml").into_iter().filter(|name| !name.contains("/values/"));
    let sets = sets.flat_map(|name| {
        let documents: Vec<_> = parsed(&name).into_iter().filter(is_one).collect();
        documents.into_iter().map(move |document| (name.clone(), document))
    });
    let sets: Vec<_> = sets.collect();
    assert!(sets.len() > 4, "this test no longer understands kubernetes/");
    sets
}

fn words(list: &Yaml) -> Vec<&str> {
    list.as_vec().into_iter().flatten().filter_map(Yaml::as_str).collect()
}

/// Every value of this name, however deep.
fn all<'a>(place: &'a Yaml, name: &str, found: &mut Vec<&'a Yaml>) {
    match place {
        Yaml::Hash(entries) => {
            for (key, value) in entries {
                if key.as_str() == Some(name) {
                    found.push(value);
                }
                all(value, name, found);
            }
        }
        Yaml::Array(items) => items.iter().for_each(|item| all(item, name, found)),
        _ => {}
    }
}

/// In the values for charts too.
#[test]
fn nothing_is_restarted_because_it_grants_no_lock() {
    let mut probes = 0;
    for name in files(".yaml") {
        for document in parsed(&name) {
            let restarts =
                ["livenessProbe", "startupProbe", "customLivenessProbe", "customStartupProbe"];
            let mut found = Vec::new();
            for probe in restarts {
                all(&document, probe, &mut found);
            }
            let mut commands = Vec::new();
            found.iter().for_each(|probe| all(probe, "command", &mut commands));
            for command in commands {
                let command = words(command).join(" ");
                assert!(!command.contains("ready"), "{name}: {command}");
                probes += 1;
            }
        }
    }
    assert!(probes > 5, "this test no longer understands the probes");
}

/// Its sentinels may be away for long. A restart would not bring them back, and the next one would begin later.
#[test]
fn a_server_may_wait_for_its_sentinels_for_a_day() {
    let probe = |file: &str| {
        let set = parsed(file).into_iter().next().unwrap();
        set["spec"]["template"]["spec"]["containers"][0]["startupProbe"].clone()
    };
    let period = probe("kubernetes/base/stateful-set.yaml")["periodSeconds"].as_i64().unwrap();
    let tries = probe("kubernetes/sentinel/servers.yaml")["failureThreshold"].as_i64().unwrap();
    assert!(period * tries >= 24 * 60 * 60, "{period} s, {tries} times");
}

/// The health check ends by itself after four seconds.
#[test]
fn probes_are_given_more_time_than_the_health_check_takes() {
    for (name, set) in stateful_sets() {
        let mut probes = Vec::new();
        for probe in ["livenessProbe", "startupProbe", "readinessProbe"] {
            all(&set, probe, &mut probes);
        }
        // A patch says only what is new in it.
        for probe in probes.into_iter().filter(|probe| !probe["exec"].is_badvalue()) {
            assert!(probe["timeoutSeconds"].as_i64().unwrap() > 4, "{name}: {probe:?}");
        }
    }
}

#[test]
fn no_container_runs_as_root_writes_to_its_image_or_gains_rights() {
    for (name, set) in stateful_sets() {
        let pod = &set["spec"]["template"]["spec"];
        // A patch says only what is new in it.
        if !set["spec"]["selector"].is_badvalue() {
            let context = &pod["securityContext"];
            assert_eq!(context["runAsNonRoot"].as_bool(), Some(true), "{name}");
            assert_eq!(
                context["seccompProfile"]["type"].as_str(),
                Some("RuntimeDefault"),
                "{name}"
            );
            assert_eq!(pod["automountServiceAccountToken"].as_bool(), Some(false), "{name}");
        }
        for kind in ["containers", "initContainers"] {
            for container in pod[kind].as_vec().into_iter().flatten() {
                let context = &container["securityContext"];
                if context.is_badvalue() && container["command"].is_badvalue() {
                    continue;
                }
                assert_eq!(context["allowPrivilegeEscalation"].as_bool(), Some(false), "{name}");
                assert_eq!(context["readOnlyRootFilesystem"].as_bool(), Some(true), "{name}");
                assert_eq!(words(&context["capabilities"]["drop"]), ["ALL"], "{name}");
                let memory = |what: &str| container["resources"][what]["memory"].as_str();
                assert!(
                    memory("limits").is_some() && memory("limits") == memory("requests"),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn servers_keep_their_locks_and_evict_none() {
    for file in ["kubernetes/base/server.conf", "kubernetes/sentinel/server.conf"] {
        let lines = text(file);
        for line in ["appendonly yes", "maxmemory-policy noeviction"] {
            assert!(lines.lines().any(|said| said == line), "{file}: {line}");
        }
    }
    let group = text("kubernetes/sentinel/server.conf");
    assert!(group.lines().any(|said| said == "min-replicas-to-write 1"));
}

/// Holders have to reach a server that grants nothing, and replicas a primary that nobody is ready for.
#[test]
fn services_send_to_servers_that_are_not_ready() {
    for name in ["base/service.yaml", "monitoring/service.yaml"] {
        for service in parsed(&format!("kubernetes/{name}")) {
            if service["kind"].as_str() == Some("Service") {
                let sends = service["spec"]["publishNotReadyAddresses"].as_bool();
                assert_eq!(sends, Some(true), "{name}");
            }
        }
    }
}

#[test]
fn the_alerts_are_those_of_the_folder_monitoring() {
    let rules = &parsed("kubernetes/monitoring/rules.yaml")[0];
    let files = ["monitoring/leasehold.rules.yml", "monitoring/kubernetes.rules.yml"];
    let wanted = files.map(|file| parsed(file)[0]["groups"].as_vec().unwrap().clone()).concat();
    let groups = rules["spec"]["groups"].as_vec().unwrap();
    assert_eq!(*groups, wanted, "scripts/check-kubernetes --write");
    assert_eq!(text("kubernetes/monitoring/leasehold.lua"), text("monitoring/leasehold.lua"));
}

#[test]
fn metrics_are_named_as_in_the_folder_monitoring() {
    let config = &parsed("monitoring/prometheus.yml")[0]["scrape_configs"][0];
    let monitor = &parsed("kubernetes/monitoring/service-monitor.yaml")[0]["spec"];
    let theirs = monitor["endpoints"][0]["metricRelabelings"].as_vec().unwrap();
    let ours = config["metric_relabel_configs"].as_vec().unwrap();
    assert_eq!(theirs.len(), ours.len());
    for (theirs, ours) in theirs.iter().zip(ours) {
        let names = [
            ("sourceLabels", "source_labels"),
            ("regex", "regex"),
            ("targetLabel", "target_label"),
            ("replacement", "replacement"),
        ];
        for (name, usual) in names {
            assert_eq!(theirs[name], ours[usual], "{name}");
        }
    }
    // The rules name the job, which the operator calls by this label of the service.
    let label = monitor["jobLabel"].as_str().unwrap();
    let service = &parsed("kubernetes/monitoring/service.yaml")[0]["metadata"]["labels"];
    assert_eq!(service[label], config["job_name"]);
}

#[test]
fn servers_are_those_that_the_images_have() {
    let image = text("docker/redis.Dockerfile");
    let base = image.lines().find_map(|line| line.strip_prefix("ARG BASE=")).unwrap();
    let mut named = BTreeSet::new();
    for (_, set) in stateful_sets() {
        let mut images = Vec::new();
        all(&set, "image", &mut images);
        named.extend(images.into_iter().map(|image| image.as_str().unwrap().to_owned()));
    }
    let mut wanted = BTreeSet::from([base.to_owned(), "leasehold:redis".to_owned()]);
    let is_exporter =
        |image: &&String| image.contains("/redis_exporter:v") && image.contains("@sha256:");
    wanted.extend(named.iter().filter(is_exporter).cloned());
    assert_eq!(named, wanted);
}

#[test]
fn every_file_is_used_and_every_used_file_is_there() {
    for kustomization in files("/kustomization.yaml") {
        let folder = Path::new(&kustomization).parent().unwrap().to_str().unwrap().to_owned();
        let file = &parsed(&kustomization)[0];
        let mut used: BTreeSet<_> = words(&file["resources"]).into_iter().collect();
        used.extend(words(&file["components"]));
        for patch in file["patches"].as_vec().into_iter().flatten() {
            used.extend(patch["path"].as_str());
        }
        for map in file["configMapGenerator"].as_vec().into_iter().flatten() {
            used.extend(words(&map["files"]));
        }
        for name in &used {
            let path = Path::new(ROOT).join(&folder).join(name);
            assert!(path.exists(), "{kustomization}: {name}");
        }
        let there = fs::read_dir(Path::new(ROOT).join(&folder)).unwrap();
        for file in there {
            let name = file.unwrap().file_name().into_string().unwrap();
            assert!(name == "kustomization.yaml" || used.contains(&*name), "{folder}/{name}");
        }
    }
}

/// Where kubectl or kustomize is: everybody else has `scripts/check-kubernetes` say what it could not check.
#[test]
fn every_overlay_can_be_built() {
    for folder in ["base", "sentinel", "example"] {
        let folder = Path::new(ROOT).join("kubernetes").join(folder);
        let Ok(output) = Command::new("kubectl").arg("kustomize").arg(folder).output() else {
            announce("skipped: no kubectl in PATH");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}
