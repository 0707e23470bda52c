//! Counts how many subschemas a validator would compile, before it does.
//!
//! The validator compiles a subschema once per dynamic scope, that is, per chain of resources (`$id`) that leads to it. A few
//! resources that refer to each other have exponentially many chains. It also recompiles everything applied to the same
//! value for each `unevaluatedProperties` and `unevaluatedItems`. The walk stops when the budget is exhausted.

use super::graph::{Node, SchemaNodeId};
use std::collections::{HashMap, HashSet};

/// Budget of compiled subschemas. Each takes about a kilobyte.
pub(super) const COMPILED_MAX: u64 = 100_000;
/// Subschemas of the meta-schema, which is compiled again for every scope.
const META_NODES: u64 = 500;
/// Maximum depth of the walk through recompiled subschemas.
const AGAIN_DEPTH_MAX: u64 = 256;

/// A dynamic scope, numbered in the order of discovery.
type ScopeId = usize;

/// Counts the compiled subschemas of a schema whose first node is the root; `None` if over the budget. Resources that refer
/// to each other in a cycle have infinitely many scopes.
pub(super) fn compile_steps(nodes: &[Node], steps_max: u64) -> Option<u64> {
    let mut again = Again { nodes, left: steps_max, open: vec![false; nodes.len()] };
    // From a scope and the resource being left to the extended scope.
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

/// Counts subschemas that are recompiled at every occurrence.
struct Again<'n> {
    nodes: &'n [Node],
    left: u64,
    /// The nodes on the current path. The validator cuts such cycles too.
    open: Vec<bool>,
}

impl Again<'_> {
    fn spend(&mut self, steps: u64) -> Option<()> {
        self.left = self.left.checked_sub(steps)?;
        Some(())
    }

    /// Counts what a node compiles to find the unevaluated parts of a value.
    fn unevaluated(&mut self, id: SchemaNodeId, depth: u64) -> Option<()> {
        let node = &self.nodes[id];
        for _ in node.unevaluated_properties.iter().chain(&node.unevaluated_items) {
            self.looked_at(id, depth)?;
        }
        Some(())
    }

    fn looked_at(&mut self, id: SchemaNodeId, depth: u64) -> Option<()> {
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

    fn whole(&mut self, id: SchemaNodeId, depth: u64) -> Option<()> {
        let (nodes, depth) = (self.nodes, depth.checked_sub(1)?);
        self.spend(1 + nodes[id].references().count() as u64)?;
        for part in nodes[id].parts() {
            self.whole(part, depth)?;
        }
        self.unevaluated(id, depth)
    }
}
