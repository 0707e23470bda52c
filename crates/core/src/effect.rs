//! The effect and the reach of a tool, declared once.
//!
//! Annotations for the model, policy defaults and approval defaults derive from them.

use std::fmt;
use std::str::FromStr;

/// What a tool does to existing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// Changes nothing.
    Read,
    /// Adds something new and leaves existing data alone.
    Create,
    /// Changes or replaces existing data.
    Write,
    /// Deletes data, or does something irreversible.
    Destroy,
}

/// How far a tool reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// The hub's own data on this machine.
    Local,
    /// Other people, accounts or machines.
    Outside,
}

/// The four annotation hints of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolAnnotations {
    pub read_only: bool,
    pub destructive: bool,
    pub idempotent: bool,
    pub open_world: bool,
}

impl Effect {
    pub const ALL: [Effect; 4] = [Effect::Read, Effect::Create, Effect::Write, Effect::Destroy];

    /// Returns the name used in configuration, on the command line and in the audit record.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::Read => "read",
            Effect::Create => "create",
            Effect::Write => "write",
            Effect::Destroy => "destroy",
        }
    }

    /// Returns whether a call changes anything.
    pub fn has_side_effects(self) -> bool {
        self != Effect::Read
    }

    /// Returns the annotation hints.
    ///
    /// A write is not called idempotent: some writes append, and a wrong promise is worse than none.
    pub fn hints(self, reach: Reach) -> ToolAnnotations {
        ToolAnnotations {
            read_only: self == Effect::Read,
            destructive: matches!(self, Effect::Write | Effect::Destroy),
            idempotent: self == Effect::Read,
            open_world: reach == Reach::Outside,
        }
    }
}

impl Reach {
    pub fn as_str(self) -> &'static str {
        match self {
            Reach::Local => "local",
            Reach::Outside => "outside",
        }
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Effect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Effect::ALL
            .into_iter()
            .find(|effect| effect.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not an effect; expected read, create, write or destroy"))
    }
}

/// A set of effects, as in a client's scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectSet(u8);

impl EffectSet {
    pub const ALL: EffectSet = EffectSet(0b1111);
    pub const NONE: EffectSet = EffectSet(0);

    pub fn contains(self, effect: Effect) -> bool {
        self.0 & (1 << effect as u8) != 0
    }

    pub fn with(self, effect: Effect) -> EffectSet {
        EffectSet(self.0 | (1 << effect as u8))
    }

    /// Returns the effects that are in both sets.
    #[must_use]
    pub fn intersection(self, other: EffectSet) -> EffectSet {
        EffectSet(self.0 & other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Effect> {
        Effect::ALL.into_iter().filter(move |effect| self.contains(*effect))
    }
}

impl FromIterator<Effect> for EffectSet {
    fn from_iter<I: IntoIterator<Item = Effect>>(effects: I) -> Self {
        effects.into_iter().fold(EffectSet::NONE, EffectSet::with)
    }
}
