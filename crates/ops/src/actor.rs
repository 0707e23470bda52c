//! Who makes a change.

use std::fmt;

/// The person who makes a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    /// An administrator, signed in to the page or the API.
    Administrator { name: String },
    /// A user of this machine, at the command line.
    LocalUser { uid: u32 },
}

impl Actor {
    pub fn administrator(name: impl Into<String>) -> Actor {
        Actor::Administrator { name: name.into() }
    }

    /// Returns the name in audit records. Not a valid client name, so it cannot collide with one.
    pub fn principal(&self) -> String {
        match self {
            Actor::Administrator { name } => format!("admin:{name}"),
            Actor::LocalUser { uid } => format!("user:{uid}"),
        }
    }
}

/// As decisions and comments name the person.
impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::Administrator { name } => write!(f, "admin {name}"),
            Actor::LocalUser { uid } => write!(f, "command line, user {uid}"),
        }
    }
}
