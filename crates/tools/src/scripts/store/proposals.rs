//! Proposals of scripts by agents, with a quota per client.

use super::{Proposal, ScriptError, ScriptName, ScriptRecords, ScriptStore, check_text, copies};

/// Pending proposals of all clients.
pub(super) const PROPOSALS_MAX: usize = 50;
/// Pending proposals of one client: a fifth of all.
pub(super) const PROPOSALS_PER_CLIENT_MAX: usize = 10;

impl ScriptStore {
    /// Stores a proposed script. It runs only after a person has accepted it. Until the decision, only the
    /// client that proposed it may replace it.
    pub fn propose(&self, name: &ScriptName, source: &str, client: &str) -> Result<Proposal, ScriptError> {
        check_text(name, source)?;
        let proposal =
            Proposal { sha256: copies::sha256(source.as_bytes()), client: client.to_owned(), at: self.now() };
        let may_propose = |records: &ScriptRecords| {
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
            Ok(())
        };
        // Kept before the change, which holds the database; what may not be proposed takes no space.
        may_propose(&self.records()?)?;
        self.copies.keep(&proposal.sha256, source)?;
        self.change(|records| {
            may_propose(records)?;
            records.entry(name.clone()).or_default().proposal = Some(proposal.clone());
            Ok(proposal)
        })
    }
}
