//! Proposal flood: a client takes all places for proposals, or replaces another client's proposal before
//! review.

use super::*;

/// Proposes until refused, each time as the client that `who` returns.
fn flood(world: &World, who: impl Fn(usize) -> String) -> usize {
    (0..PROPOSALS_MAX * 2)
        .take_while(|number| {
            world.scripts.propose(&format!("spam{number}").parse().unwrap(), "1", &who(*number)).is_ok()
        })
        .count()
}

fn is_let(world: &World, name: &str, client: &str) -> bool {
    world.scripts.propose(&name.parse().unwrap(), "result = 'honest'", client).is_ok()
}

#[test]
fn one_client_leaves_room_for_the_others() {
    let world = World::new();
    assert_eq!(flood(&world, |_| "greedy".to_owned()), PROPOSALS_PER_CLIENT_MAX);
    let refused = world.scripts.propose(&"more".parse().unwrap(), "1", "greedy").unwrap_err();
    assert!(matches!(refused, ScriptError::ManyOwnProposals), "{refused}");
    assert!(is_let(&world, "honest", "honest"));
    // It may replace its own, and a decision makes room.
    world.scripts.propose(&"spam0".parse().unwrap(), "2", "greedy").unwrap();
    world.scripts.remove(&"spam0".parse().unwrap()).unwrap();
    world.scripts.propose(&"more".parse().unwrap(), "1", "greedy").unwrap();
}

/// The check can fail: if every proposal counted as another client's, one client would fill the store.
#[test]
fn a_weak_store_that_knows_no_clients_is_filled() {
    let world = World::new();
    assert_eq!(flood(&world, |number| format!("name{number}")), PROPOSALS_MAX);
    assert!(!is_let(&world, "honest", "honest"));
}

/// Lets one client propose, and another the same name. Returns the text that a person would see.
fn replaced(first: &str, second: &str) -> String {
    let world = World::new();
    let name: ScriptName = "report".parse().unwrap();
    world.scripts.propose(&name, "result = 'reviewed'", first).unwrap();
    let _ = world.scripts.propose(&name, "result = 'swapped'", second);
    world.scripts.review(&name).unwrap().proposed.unwrap()
}

#[test]
fn what_another_client_proposed_is_not_replaced() {
    assert_eq!(replaced("ada", "mallory"), "result = 'reviewed'");
    // The check can fail: if both have one name, it is replaced.
    assert_eq!(replaced("ada", "ada"), "result = 'swapped'");
    // After the decision, the name is free.
    let world = World::new();
    let name: ScriptName = "report".parse().unwrap();
    let proposal = world.scripts.propose(&name, "1", "ada").unwrap();
    assert!(matches!(world.scripts.propose(&name, "2", "mallory"), Err(ScriptError::ProposedByAnother(_))));
    let reject = ScriptRejection { sha256: proposal.sha256, reason: None, by: "me".to_owned(), seen: None };
    world.scripts.reject(&name, reject).unwrap();
    world.scripts.propose(&name, "2", "mallory").unwrap();
}
