//! The overview: targets and figures of all servers in one table.

use super::table::Table;
use std::fs;
use std::path::Path;

/// A figure that was not measured on a server.
const NONE: &str = "–";

/// The overview, from the files of targets in this folder.
pub(crate) fn of(folder: &Path) -> Table {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix("-targets.csv").map(str::to_owned))
        .collect();
    names.sort();
    let of_each: Vec<Table> = names
        .iter()
        .map(|name| fs::read_to_string(folder.join(format!("{name}-targets.csv"))).unwrap())
        .map(|text| Table::parse(&text))
        .collect();
    let titles: Vec<String> = names.iter().map(|name| title(name)).collect();
    let mut columns = vec!["What", "Against", "Wanted"];
    columns.extend(titles.iter().map(String::as_str));
    let mut overview = Table::new(&columns);
    for target in targets(&of_each) {
        let measured = of_each.iter().map(|table| {
            let row = table.rows().iter().find(|row| row.starts_with(&target));
            row.map_or(NONE.to_owned(), |row| cell(&row[3], &row[4]))
        });
        overview.row(target.iter().cloned().chain(measured).collect());
    }
    overview
}

/// `redis-7.0` is Redis 7.0.
fn title(name: &str) -> String {
    let (product, version) = name.split_once('-').expect("a product and a version");
    let (first, rest) = product.split_at(1);
    format!("{}{rest} {version}", first.to_uppercase())
}

/// What is measured, against what, and the target. Each occurs once, and similar ones are side by
/// side.
fn targets(of_each: &[Table]) -> Vec<[String; 3]> {
    let mut targets: Vec<[String; 3]> = Vec::new();
    for row in of_each.iter().flat_map(Table::rows) {
        let target = [row[0].clone(), row[1].clone(), row[2].clone()];
        if !targets.contains(&target) {
            let alike = targets.iter().rposition(|other| other[0] == target[0]);
            targets.insert(alike.map_or(targets.len(), |at| at + 1), target);
        }
    }
    targets
}

/// The figure without its quartiles, in bold where the target is missed.
fn cell(measured: &str, met: &str) -> String {
    let short = match (measured.find(" ("), measured.find(") ")) {
        (Some(begin), Some(end)) => format!("{}{}", &measured[..begin], &measured[end + 1..]),
        _ => measured.to_owned(),
    };
    if met == "yes" { short } else { format!("**{short}**") }
}
