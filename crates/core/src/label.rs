//! Data-flow labels of tools: private data, untrusted content, exfiltration path.
//!
//! Each alone is harmless. Together they are the lethal trifecta of prompt injection: untrusted content tells the model to
//! carry private data out. Policy rules match on labels.

use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// Returns private data.
    Private,
    /// Returns content from untrusted authors.
    Untrusted,
    /// Its arguments leave the machine.
    Outward,
}

impl Label {
    pub const ALL: [Label; 3] = [Label::Private, Label::Untrusted, Label::Outward];

    /// Returns the name used in configuration and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Label::Private => "private",
            Label::Untrusted => "untrusted",
            Label::Outward => "outward",
        }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Labels(u8);

impl Labels {
    pub const NONE: Labels = Labels(0);
    /// The default for upstream tools without configured labels: they may return anything and send anywhere.
    pub const FOREIGN: Labels = Labels::NONE.with(Label::Untrusted).with(Label::Outward);

    pub const fn with(self, label: Label) -> Labels {
        Labels(self.0 | (1 << label as u8))
    }

    pub fn contains(self, label: Label) -> bool {
        self.0 & (1 << label as u8) != 0
    }

    /// Returns whether the sets intersect.
    pub fn meets(self, other: Labels) -> bool {
        self.0 & other.0 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Label> {
        Label::ALL.into_iter().filter(move |label| self.contains(*label))
    }

    /// Returns the names, in a fixed order.
    pub fn names(self) -> Vec<&'static str> {
        self.iter().map(Label::as_str).collect()
    }
}

impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        labels.into_iter().fold(Labels::NONE, Labels::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_meet_where_they_share_a_label() {
        assert_eq!(Labels::FOREIGN.names(), ["untrusted", "outward"]);
        assert!(Labels::FOREIGN.meets(Label::ALL.into_iter().collect()));
        assert!(!Labels::FOREIGN.meets(Labels::NONE.with(Label::Private)));
        assert!(!Labels::NONE.meets(Labels::NONE));
    }
}
