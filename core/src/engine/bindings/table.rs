//! Which holds are bound to which connections.

use crate::lock::{
    Ephemeral, KeptName, KeptOwner, Moment, Monotonic, Name, Now, Owner, from_index,
};
use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::ops::Bound;

/// A hold, and the connection that it ends with.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) name: KeptName,
    pub(crate) owner: KeptOwner,
    pub(crate) fence_number: u64,
    pub(crate) ephemeral: Ephemeral,
    pub(crate) since: Moment,
    pub(crate) demand: Demand,
    /// When to check whether the hold is still there: it may run out, be deleted or be overwritten.
    pub(crate) look: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BindingId(usize);

/// Whether anybody has waited for the lock while the hold was bound. When a connection ends, holds with demand end
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Demand {
    Some,
    None,
}

/// Identifies a hold by its fence, and by a hash of its lock and its owner. The fence alone is not enough: RAISE can
/// give two holds the same fence.
type Grant = (u64, u64);

/// By database, by the hash of the lock's name, and by binding.
type Place = (i32, u64, BindingId);

/// Holds of a database may be gone, and are looked at one by one.
#[derive(Debug, Default)]
struct Doubt {
    /// The place that was looked at last.
    last: Option<Place>,
    /// Another doubt has come since the first place was looked at.
    again: bool,
}

impl Binding {
    /// Whether this binding is of the owner's hold of the lock.
    fn is_of(&self, name: Name<'_>, owner: Owner<'_>) -> bool {
        self.name.as_name() == name && self.owner.as_owner() == owner
    }
}

/// An empty table larger than this is freed.
const KEPT: usize = 100;

/// Indexed by grant, because each release looks up its binding; by name, because a command may come right after a
/// connection has ended; by connection; and by when to look.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    /// The names in here have the number of a space in place of a database: see `spaces`.
    all: Slab<Binding>,
    /// Which databases have been swapped, and which space each has now. SWAPDB swaps the spaces of two databases, and so
    /// moves no binding.
    spaces: Vec<(i32, i32)>,
    grants: HashMap<Grant, BindingId, RandomState>,
    names: BTreeSet<Place>,
    /// The seed of the name hashes. Without a secret, clients could choose names with equal hashes, and every command
    /// on one of them would look at all of them.
    secret: RandomState,
    connections: BTreeSet<(u64, Demand, BindingId)>,
    looks: BTreeSet<(Moment, BindingId)>,
    /// Databases whose holds are looked at now, whether they are due or not: see [`Bindings::doubt`].
    doubts: BTreeMap<i32, Doubt>,
    /// Connections that have ended while holds were bound to them, and when.
    ended: BTreeMap<u64, Monotonic>,
    /// The same connections, in the order in which their holds are looked at. Each turn takes one hold of one
    /// connection, so that a connection with many holds does not delay the others.
    turns: VecDeque<u64>,
    /// Nothing can be written before this time.
    not_before: Option<Monotonic>,
}

impl Bindings {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Binds a hold, in place of its former binding if it has one.
    pub(crate) fn bind(&mut self, binding: Binding) {
        let Binding { ref name, ref owner, fence_number, .. } = binding;
        self.remove(name.as_name(), owner.as_owner(), fence_number);
        self.add(self.with_space(binding));
    }

    /// Somebody waits for this lock now, so its holds end first when their connections end.
    pub(crate) fn demand(&mut self, name: Name<'_>) {
        let alike: Vec<_> = self.alike(self.in_space(name)).collect();
        for id in alike {
            let Some(binding) = self.all.get_mut(id.0) else { continue };
            let former = std::mem::replace(&mut binding.demand, Demand::Some);
            let connection = binding.ephemeral.connection;
            if former == Demand::None && self.connections.remove(&(connection, former, id)) {
                self.connections.insert((connection, Demand::Some, id));
            }
        }
    }

    fn add(&mut self, binding: Binding) {
        let Binding { ephemeral: Ephemeral { connection, .. }, demand, look, .. } = binding;
        let (grant, name) = (self.grant_of(&binding), self.place_of(binding.name.as_name()));
        let id = BindingId(self.all.insert(binding));
        // Another hold with this fence and owner loses its binding, and its lease ends it. Only clients that chose both
        // can cause this.
        if let Some(&other) = self.grants.get(&grant) {
            self.take(other);
        }
        self.grants.insert(grant, id);
        self.names.insert((name.0, name.1, id));
        self.connections.insert((connection, demand, id));
        self.looks.insert((look, id));
    }

    /// Removes the binding of a hold that is over or replaced.
    pub(crate) fn remove(&mut self, name: Name<'_>, owner: Owner<'_>, fence_number: u64) {
        let Some(id) = self.id_of(self.in_space(name), owner, fence_number) else { return };
        self.take(id);
        self.tidy();
    }

    /// Frees the room of a crowd that has gone. Not called while a binding is taken out that may be added again.
    pub(crate) fn tidy(&mut self) {
        if self.all.is_empty() && self.all.capacity() > KEPT {
            *self = Self::default();
        }
    }

    fn id_of(&self, name: Name<'_>, owner: Owner<'_>, fence_number: u64) -> Option<BindingId> {
        let id = *self.grants.get(&self.grant(name, owner, fence_number))?;
        self.all.get(id.0).is_some_and(|binding| binding.is_of(name, owner)).then_some(id)
    }

    pub(crate) fn raise(
        &mut self,
        name: Name<'_>,
        owner: Owner<'_>,
        former: u64,
        fence_number: u64,
    ) {
        if let Some(binding) =
            self.id_of(self.in_space(name), owner, former).and_then(|id| self.take(id))
        {
            self.add(Binding { fence_number, ..binding });
        }
    }

    fn take(&mut self, id: BindingId) -> Option<Binding> {
        let binding = self.all.try_remove(id.0)?;
        self.grants.remove(&self.grant_of(&binding));
        let (db, hash) = self.place_of(binding.name.as_name());
        self.names.remove(&(db, hash, id));
        self.connections.remove(&(binding.ephemeral.connection, binding.demand, id));
        self.looks.remove(&(binding.look, id));
        Some(binding)
    }

    /// A connection has ended. False if no hold was bound to it.
    pub(crate) fn connection_ended(&mut self, connection: u64, now: Monotonic) -> bool {
        let is_bound = self.first_of(connection).is_some();
        if is_bound && self.ended.insert(connection, now).is_none() {
            self.turns.push_back(connection);
        }
        is_bound
    }

    fn first_of(&self, connection: u64) -> Option<BindingId> {
        let first = (connection, Demand::Some, BindingId(0));
        let &(of, _, id) = self.connections.range(first..).next()?;
        (of == connection).then_some(id)
    }

    /// Whether a connection has ended whose holds have not all been looked at.
    pub(crate) fn has_ended(&self) -> bool {
        !self.turns.is_empty()
    }

    /// When there is next something to do, if that is now. Later looks need no timer of their own: the server's cron
    /// notices when they are due.
    pub(crate) fn next_due(&self, now: Now) -> Option<Moment> {
        let has_look = self.looks.first().is_some_and(|&(look, _)| look <= now.wall);
        let is_due = self.has_ended() || !self.doubts.is_empty() || has_look;
        is_due.then(|| self.not_before.map_or(now.wall, |not_before| now.wall_at(not_before)))
    }

    /// Takes a hold whose connection has ended, and the time of that end.
    pub(crate) fn take_ended(&mut self) -> Option<(Binding, Monotonic)> {
        while let Some(connection) = self.turns.pop_front() {
            let Some(&since) = self.ended.get(&connection) else { continue };
            if let Some(binding) = self.first_of(connection).and_then(|id| self.take(id)) {
                if self.first_of(connection).is_some() {
                    self.turns.push_back(connection);
                } else {
                    self.ended.remove(&connection);
                }
                return Some((self.with_db(binding), since));
            }
            self.ended.remove(&connection);
        }
        None
    }

    /// Whether this owner has a hold of the lock whose connection has ended.
    pub(crate) fn has_ended_of(&self, name: Name<'_>, owner: Owner<'_>) -> bool {
        self.ended_of(name).any(|(_, binding, _)| binding.owner.as_owner() == owner)
    }

    /// Takes at most `at_most` holds of this lock whose connections have ended, the asker's first. Of the asker's
    /// bindings, only the binding with the largest fence can be of a hold in force.
    pub(crate) fn take_ended_of(
        &mut self,
        name: Name<'_>,
        asker: Option<Owner<'_>>,
        at_most: usize,
    ) -> Vec<(Binding, Monotonic)> {
        let of_asker = self
            .ended_of(name)
            .filter(|(_, binding, _)| Some(binding.owner.as_owner()) == asker)
            .max_by_key(|(_, binding, _)| binding.fence_number)
            .map(|(id, _, since)| (id, since));
        let others = self.ended_of(name).map(|(id, _, since)| (id, since));
        let others = others.filter(|&other| Some(other) != of_asker);
        let ended: Vec<_> = of_asker.into_iter().chain(others).take(at_most).collect();
        let taken = ended.into_iter().filter_map(|(id, since)| {
            let binding = self.take(id)?;
            Some((self.with_db(binding), since))
        });
        taken.collect()
    }

    /// The holds of this lock that are over with their connections, and have not been released yet.
    pub(crate) fn over(
        &self,
        name: Name<'_>,
        now: Monotonic,
    ) -> impl Iterator<Item = (KeptOwner, u64)> {
        self.ended_of(name).filter_map(move |(_, binding, since)| {
            let left = binding.ephemeral.grace.left(since, now);
            left.is_none().then(|| (binding.owner.clone(), binding.fence_number))
        })
    }

    /// The first binding from this index on, and its lock if it is of this owner. An index stays while a hold is bound.
    pub(crate) fn hold_from(
        &self,
        index: usize,
        owner: Owner<'_>,
    ) -> Option<(usize, Option<KeptName>)> {
        let (index, binding) = from_index(&self.all, index)?;
        let binding = binding.filter(|binding| binding.owner.as_owner() == owner);
        let name = |binding: &Binding| KeptName {
            db: self.db_of(binding.name.db),
            ..binding.name.clone()
        };
        Some((index, binding.map(name)))
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Name<'_>, &Binding)> {
        self.all.iter().map(|(_, binding)| {
            (Name::new(self.db_of(binding.name.db), &binding.name.key), binding)
        })
    }

    fn ended_of(&self, name: Name<'_>) -> impl Iterator<Item = (BindingId, &Binding, Monotonic)> {
        let name = self.in_space(name);
        self.alike(name).filter_map(move |id| {
            let binding = self.all.get(id.0).filter(|binding| binding.name.as_name() == name)?;
            Some((id, binding, *self.ended.get(&binding.ephemeral.connection)?))
        })
    }

    /// The bindings of this lock, and of the very few others with the same hash.
    fn alike(&self, name: Name<'_>) -> impl Iterator<Item = BindingId> {
        let (db, hash) = self.place_of(name);
        let all = (db, hash, BindingId(0))..=(db, hash, BindingId(usize::MAX));
        self.names.range(all).map(|&(_, _, id)| id)
    }

    fn place_of(&self, Name { db, key }: Name<'_>) -> (i32, u64) {
        (db, self.secret.hash_one(key))
    }

    fn grant(&self, Name { db, key }: Name<'_>, owner: Owner<'_>, fence_number: u64) -> Grant {
        (fence_number, self.secret.hash_one((db, key, owner.as_bytes())))
    }

    fn grant_of(&self, binding: &Binding) -> Grant {
        self.grant(binding.name.as_name(), binding.owner.as_owner(), binding.fence_number)
    }

    /// Binds the hold again, as before, to a connection that ended at `since`: nothing is done about it now.
    pub(crate) fn put_off(&mut self, binding: Binding, since: Monotonic) {
        let connection = binding.ephemeral.connection;
        self.add(self.with_space(binding));
        if self.ended.insert(connection, since).is_none() {
            self.turns.push_back(connection);
        }
    }

    /// Nothing can be written before `until`, for any lock.
    pub(crate) fn wait(&mut self, until: Monotonic) {
        self.not_before = Some(until);
    }

    pub(crate) fn take_look(&mut self, now: Moment) -> Option<Binding> {
        let is_due = |&&(look, _): &&(Moment, BindingId)| look <= now;
        let id = self.next_in_doubt().or_else(|| Some(self.looks.first().filter(is_due)?.1))?;
        self.take(id).map(|binding| self.with_db(binding))
    }

    fn next_in_doubt(&mut self) -> Option<BindingId> {
        while let Some(mut doubt) = self.doubts.first_entry() {
            let db = *doubt.key();
            let first = Bound::Included((db, 0, BindingId(0)));
            let from = doubt.get().last.map_or(first, Bound::Excluded);
            let next = self.names.range((from, Bound::Unbounded)).next();
            if let Some(&place @ (_, _, id)) = next.filter(|place| place.0 == db) {
                doubt.get_mut().last = Some(place);
                return Some(id);
            }
            if doubt.get().again {
                *doubt.get_mut() = Doubt::default();
            } else {
                doubt.remove();
            }
        }
        None
    }

    /// Binds the hold again: it is still there. Its connection may have ended since [`Bindings::take_look`] took it.
    pub(crate) fn keep(&mut self, binding: Binding, look: Moment) {
        self.add(Binding { look, ..self.with_space(binding) });
    }

    /// Holds of this database (`None`: of all) may be gone. Takes one step for each database that has any.
    pub(crate) fn doubt(&mut self, db: Option<i32>) {
        let db = db.map(|db| self.space(db));
        let mut from = db.unwrap_or(i32::MIN);
        while let Some(&(found, _, _)) = self.names.range((from, 0, BindingId(0))..).next()
            && db.is_none_or(|db| db == found)
        {
            self.doubts
                .entry(found)
                .and_modify(|doubt| doubt.again = doubt.last.is_some())
                .or_default();
            let Some(next) = found.checked_add(1) else { return };
            from = next;
        }
    }

    /// The locks of two databases have changed places.
    pub(crate) fn swap(&mut self, one: i32, other: i32) {
        let (of_one, of_other) = (self.space(one), self.space(other));
        for (db, space) in [(one, of_other), (other, of_one)] {
            self.spaces.retain(|(known, _)| *known != db);
            if space != db {
                self.spaces.push((db, space));
            }
        }
    }

    fn space(&self, db: i32) -> i32 {
        self.spaces.iter().find(|(known, _)| *known == db).map_or(db, |&(_, space)| space)
    }

    fn in_space<'k>(&self, Name { db, key }: Name<'k>) -> Name<'k> {
        Name { db: self.space(db), key }
    }

    fn with_space(&self, mut binding: Binding) -> Binding {
        binding.name.db = self.space(binding.name.db);
        binding
    }

    fn with_db(&self, mut binding: Binding) -> Binding {
        binding.name.db = self.db_of(binding.name.db);
        binding
    }

    fn db_of(&self, space: i32) -> i32 {
        self.spaces.iter().find(|(_, known)| *known == space).map_or(space, |&(db, _)| db)
    }
}

#[cfg(test)]
mod tests;
