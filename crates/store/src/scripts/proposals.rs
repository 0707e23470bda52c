//! What agents propose: how much of it waits for a person, and whose it is.

use super::{Proposal, ScriptError, ScriptName, Scripts, check_text, copies};

/// How many proposals wait at most.
pub(super) const PROPOSALS_MAX: usize = 50;
/// How many of these one client may have: a fifth.
pub(super) const PROPOSALS_PER_CLIENT_MAX: usize = 10;

impl Scripts {
    /// Keeps a text that an agent wants to be a script. It runs only once a person has accepted it. Until that is decided, only
    /// the client that proposed it may propose it anew.
    pub fn propose(&self, name: &ScriptName, source: &str, client: &str) -> Result<Proposal, ScriptError> {
        check_text(name, source)?;
        let proposal =
            Proposal { sha256: copies::sha256(source.as_bytes()), client: client.to_owned(), at: self.now() };
        self.change(|records| {
            let mine = |proposal: &Proposal| proposal.client == client;
            if records.get(name).and_then(|record| record.proposal.as_ref()).is_some_and(|it| !mine(it)) {
                return Err(ScriptError::ProposedByAnother(name.clone()));
            }
            let others = records.iter().filter(|(other, _)| *other != name);
            let waiting: Vec<&Proposal> = others.filter_map(|(_, record)| record.proposal.as_ref()).collect();
            if waiting.iter().filter(|proposal| mine(proposal)).count() >= PROPOSALS_PER_CLIENT_MAX {
                return Err(ScriptError::ManyOwnProposals);
            }
            if waiting.len() >= PROPOSALS_MAX {
                return Err(ScriptError::ManyProposals);
            }
            self.copies.keep(&proposal.sha256, source)?;
            records.entry(name.clone()).or_default().proposal = Some(proposal.clone());
            Ok(proposal)
        })
    }
}
