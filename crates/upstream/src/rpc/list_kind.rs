//! The lists of a server that it announces changes of.

use portcullis_core::List;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ListKind {
    Tools,
    Prompts,
    Resources,
}

impl ListKind {
    pub(crate) const ALL: [ListKind; 3] = [ListKind::Tools, ListKind::Prompts, ListKind::Resources];

    pub(crate) fn refresh_lists(self) -> List {
        match self {
            ListKind::Tools => List::Tools,
            ListKind::Prompts => List::Prompts,
            ListKind::Resources => List::Resources,
        }
    }
}
