//! Two of a kind: the servers a and b, the clients alice and bob.

/// One of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Which {
    /// Server a, or alice.
    First,
    /// Server b, or bob.
    Second,
}

impl Which {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::First, Self::Second];

    /// The other one.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// As which server it is known.
    pub const fn server(self) -> &'static str {
        match self {
            Self::First => "a",
            Self::Second => "b",
        }
    }

    /// As which client it is known.
    pub const fn client(self) -> &'static str {
        match self {
            Self::First => "alice",
            Self::Second => "bob",
        }
    }
}

/// Two of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Both<T> {
    first: T,
    second: T,
}

impl<T> Both<T> {
    /// These two.
    pub const fn new(first: T, second: T) -> Self {
        Self { first, second }
    }

    /// One of them.
    pub const fn get(&self, which: Which) -> &T {
        match which {
            Which::First => &self.first,
            Which::Second => &self.second,
        }
    }

    /// One of them, to change it.
    pub const fn get_mut(&mut self, which: Which) -> &mut T {
        match which {
            Which::First => &mut self.first,
            Which::Second => &mut self.second,
        }
    }

    /// Both, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        [&self.first, &self.second].into_iter()
    }
}
