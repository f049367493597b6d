//! Goes through all worlds that there can be, breadth first, so that what is found first is the shortest.

use crate::setting::Setting;
use crate::step::Step;
use crate::world::{Promise, World};
use foldhash::{HashSet, HashSetExt};
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a search has come to.
#[derive(Debug)]
pub struct Found {
    /// How many worlds differ.
    pub worlds: usize,
    /// How many steps lead from one to another.
    pub steps: usize,
    /// How often each kind of step was taken, by its name.
    pub taken: BTreeMap<&'static str, usize>,
    /// The most grants that there are in a world.
    pub grants: u8,
    /// The shortest way to a world in which a promise is broken.
    pub broken: Option<Broken>,
}

/// How a promise is broken.
#[derive(Debug)]
pub struct Broken {
    /// Which.
    pub promise: Promise,
    /// How it began.
    pub beginning: World,
    /// What happened then, and where it led.
    pub way: Vec<(Step, World)>,
}

/// A world, and the step that first led to it from another.
struct Seen {
    world: Rc<World>,
    from: Option<(usize, Step)>,
}

/// Goes through all worlds of a setting, up to the first in which one of these promises is broken.
pub fn explore(setting: &Setting, promises: &[Promise]) -> Found {
    let mut known = HashSet::new();
    let mut seen = Vec::new();
    for world in World::beginnings(setting).into_iter().map(Rc::new) {
        if known.insert(Rc::clone(&world)) {
            seen.push(Seen { world, from: None });
        }
    }
    let mut found = Found { worlds: 0, steps: 0, taken: BTreeMap::new(), grants: 0, broken: None };
    let mut at = 0_usize;
    while let Some(next) = seen.get(at) {
        let world = Rc::clone(&next.world);
        found.grants = found.grants.max(world.granted);
        if let Some(&promise) = promises.iter().find(|promise| !world.keeps(**promise)) {
            found.broken = way_to(&seen, at, promise);
            break;
        }
        for (step, next) in world.steps(setting) {
            found.steps = found.steps.saturating_add(1);
            let taken = found.taken.entry(step.in_code().name).or_default();
            *taken = taken.saturating_add(1);
            let next = Rc::new(next);
            if known.insert(Rc::clone(&next)) {
                seen.push(Seen { world: next, from: Some((at, step)) });
            }
        }
        at = at.saturating_add(1);
    }
    found.worlds = known.len();
    found
}

fn way_to(seen: &[Seen], end: usize, promise: Promise) -> Option<Broken> {
    let mut way = Vec::new();
    let mut at = seen.get(end)?;
    while let Some((before, step)) = at.from {
        way.push((step, World::clone(&at.world)));
        at = seen.get(before)?;
    }
    way.reverse();
    Some(Broken { promise, beginning: World::clone(&at.world), way })
}
