//! How many subschemas a validator compiles, counted before it does.
//!
//! It compiles a subschema once for each dynamic scope: each list of resources (`$id`) that leads to it. A few resources that
//! refer to each other have exponentially many of those. And it compiles all that is applied to the same value once more for
//! each `unevaluatedProperties` and `unevaluatedItems`. This walk stops when the budget is used up.

use super::graph::{Node, NodeId};
use std::collections::{HashMap, HashSet};

/// How many subschemas may be compiled. Each takes about a kilobyte.
pub(super) const COMPILED_MAX: u64 = 100_000;
/// How many subschemas the published definition of schemas has, which is compiled anew for every scope.
const META_NODES: u64 = 500;
/// How deep the walk through what is compiled once more may go.
const AGAIN_DEPTH_MAX: u64 = 256;

/// A dynamic scope, by its place in the list of those that were met.
type ScopeId = usize;

/// Counts what is compiled of a schema whose first node is its root, or returns `None` if that is more than the budget. Resources
/// that refer to each other in a circle have scopes without end.
pub(super) fn compile_steps(nodes: &[Node], steps_max: u64) -> Option<u64> {
    let mut again = Again { nodes, left: steps_max, open: vec![false; nodes.len()] };
    // By a scope and the resource that is left, the longer scope.
    let mut scopes: HashMap<(ScopeId, usize), ScopeId> = HashMap::new();
    let (mut left, mut seen) = (vec![(0, 0)], HashSet::from([(0, 0)]));
    while let Some((id, scope)) = left.pop() {
        let node = &nodes[id];
        again.spend(1 + if node.meta { META_NODES } else { 0 })?;
        again.unevaluated(id, AGAIN_DEPTH_MAX)?;
        for child in node.parts().chain(node.references()) {
            let met = scopes.len() + 1;
            let scope = if nodes[child].resource == node.resource {
                scope
            } else {
                *scopes.entry((scope, node.resource)).or_insert(met)
            };
            if seen.insert((child, scope)) {
                left.push((child, scope));
            }
        }
    }
    Some(steps_max - again.left)
}

/// What is compiled once more, each time that it is met.
struct Again<'n> {
    nodes: &'n [Node],
    left: u64,
    /// What is looked through now. The validator closes such a circle, too.
    open: Vec<bool>,
}

impl Again<'_> {
    fn spend(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    /// Counts what a node compiles to learn what of a value it has not looked at.
    fn unevaluated(&mut self, id: NodeId, depth: u64) -> Option<()> {
        let node = &self.nodes[id];
        for _ in node.unevaluated_properties.iter().chain(&node.unevaluated_items) {
            self.looked_at(id, depth)?;
        }
        Some(())
    }

    fn looked_at(&mut self, id: NodeId, depth: u64) -> Option<()> {
        let (nodes, depth) = (self.nodes, depth.checked_sub(1)?);
        self.spend(1)?;
        if self.open[id] {
            return Some(());
        }
        self.open[id] = true;
        for part in nodes[id].parts() {
            self.whole(part, depth)?;
        }
        for child in nodes[id].on_same_value() {
            self.looked_at(child, depth)?;
        }
        self.open[id] = false;
        Some(())
    }

    fn whole(&mut self, id: NodeId, depth: u64) -> Option<()> {
        let (nodes, depth) = (self.nodes, depth.checked_sub(1)?);
        self.spend(1 + nodes[id].references().count() as u64)?;
        for part in nodes[id].parts() {
            self.whole(part, depth)?;
        }
        self.unevaluated(id, depth)
    }
}
