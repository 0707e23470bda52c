//! How many steps it takes to compare a value with a schema, counted before it is done.
//!
//! A validator has no budget of its own, and a short schema can ask for more than anybody can wait for: each of forty
//! definitions that names the next one twice doubles the work. So the work is walked through first, without deciding
//! anything: every subschema is applied to whatever it would be applied to if nothing ended early. The walk stops
//! when the budget is used up, and what it stops at is never evaluated. It also bounds how deep the validator recurses.

use super::compile_steps::{COMPILED_MAX, compile_steps};
use super::graph::{Applied, BYTES_PER_STEP, Node, NodeId, graph, is_nested, weight};
use serde_json::Value;

/// How many steps one comparison may take. A step is some ten nanoseconds, with everything around it at most a hundred.
pub const STEPS_MAX: u64 = 10_000_000;
/// How many steps gathering what is wrong may take. Each of them may leave an error in memory.
pub const ERROR_STEPS_MAX: u64 = 100_000;
/// How many steps a schema may ask for on one and the same value, whatever is in it.
const STEPS_PER_VALUE_MAX: u64 = 100_000;
/// How many subschemas may lead to each other on one and the same value.
const NESTED_PER_VALUE_MAX: u64 = 128;
/// How many subschemas may lead to each other in all. The validator recurses as deep, on a stack of two megabytes.
const NESTED_MAX: u64 = 512;
/// How many states all patterns of a schema may have together. Each takes some ten bytes once it is compiled.
const PATTERN_STATES_MAX: u64 = 1_000_000;
/// How many steps one part of a value takes where a schema asks that it be a schema.
const META_STEPS: u64 = 256;
/// Arrays of up to so many items are compared item by item; larger ones by their hashes.
const PAIRWISE_MAX: u64 = 16;

/// Why a comparison is not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooCostly {
    #[error("it takes more than {0} steps")]
    Steps(u64),
    #[error("subschemas lead to each other more than {NESTED_MAX} times")]
    Depth,
}

/// What it takes to compare a value with a schema.
pub struct Cost {
    nodes: Vec<Node>,
}

impl Cost {
    /// Looks at a schema. One that no value could be compared with within the budget is an error.
    pub fn of(schema: &Value) -> Result<Cost, String> {
        let cost = Cost { nodes: graph(schema)? };
        let mut bounds = vec![Bound::Unknown; cost.nodes.len()];
        let mut states = 0_u64;
        for (id, node) in cost.nodes.iter().enumerate() {
            cost.bound(id, &mut bounds, NESTED_PER_VALUE_MAX)?;
            let patterns = node.pattern_properties.iter().map(|(pattern, _)| pattern).chain(&node.pattern);
            states = patterns.fold(states, |states, pattern| states.saturating_add(pattern.states()));
        }
        if compile_steps(&cost.nodes, COMPILED_MAX).is_none() {
            return Err(format!("it takes more than {COMPILED_MAX} steps to make a validator of it"));
        }
        if states > PATTERN_STATES_MAX {
            return Err("its patterns are too large".to_owned());
        }
        Ok(cost)
    }

    /// Returns how many steps it takes to tell whether a value fits.
    pub fn steps(&self, value: &Value, steps_max: u64) -> Result<u64, TooCostly> {
        let mut walk = Walk { nodes: &self.nodes, left: steps_max, steps_max };
        walk.fit(0, value, Mode::Verdict, NESTED_MAX)?;
        Ok(steps_max - walk.left)
    }

    /// Returns how many steps it takes to tell all that is wrong with a value.
    pub fn error_steps(&self, value: &Value, steps_max: u64) -> Result<u64, TooCostly> {
        let mut walk = Walk { nodes: &self.nodes, left: steps_max, steps_max };
        walk.fit(0, value, Mode::Errors { copied: false }, NESTED_MAX)?;
        Ok(steps_max - walk.left)
    }

    /// Returns what a subschema takes on one value, not counting what is within that.
    fn bound(&self, id: NodeId, bounds: &mut [Bound], depth_left: u64) -> Result<Steps, String> {
        match bounds[id] {
            Bound::Known(steps) if steps.height <= depth_left => return Ok(steps),
            Bound::Unknown if depth_left > 0 => {}
            Bound::Open => return Err("it refers to itself without end".to_owned()),
            Bound::Known(_) | Bound::Unknown => {
                return Err(format!("more than {NESTED_PER_VALUE_MAX} of its parts lead to each other"));
            }
        }
        bounds[id] = Bound::Open;
        let node = &self.nodes[id];
        let mut steps = Steps { fit: 1 + node.keywords, mark: 1, height: 1 };
        for child in node.on_same_value() {
            let child = self.bound(child, bounds, depth_left - 1)?;
            steps.fit = steps.fit.saturating_add(child.fit);
            steps.mark = steps.mark.saturating_add(child.fit).saturating_add(child.mark);
            steps.height = steps.height.max(child.height + 1);
        }
        if node.has_unevaluated() {
            steps.fit = steps.fit.saturating_add(steps.mark);
        }
        if steps.fit > STEPS_PER_VALUE_MAX {
            return Err(format!("it takes more than {STEPS_PER_VALUE_MAX} steps to compare a value with it"));
        }
        bounds[id] = Bound::Known(steps);
        Ok(steps)
    }
}

#[derive(Clone, Copy)]
enum Bound {
    Unknown,
    /// Being looked at.
    Open,
    Known(Steps),
}

#[derive(Clone, Copy)]
struct Steps {
    fit: u64,
    /// To find out what of a value was looked at, where something is said of the rest.
    mark: u64,
    height: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Verdict,
    /// All errors are gathered; those of alternatives with a copy of what they are about.
    Errors {
        copied: bool,
    },
}

struct Walk<'c> {
    nodes: &'c [Node],
    left: u64,
    steps_max: u64,
}

impl<'c> Walk<'c> {
    fn spend(&mut self, steps: u64) -> Result<(), TooCostly> {
        self.left = self.left.checked_sub(steps).ok_or(TooCostly::Steps(self.steps_max))?;
        Ok(())
    }

    /// Walks through what telling takes whether a value fits a subschema.
    fn fit(&mut self, id: NodeId, value: &Value, mode: Mode, depth: u64) -> Result<(), TooCostly> {
        let depth = depth.checked_sub(1).ok_or(TooCostly::Depth)?;
        let nodes = self.nodes;
        let node = &nodes[id];
        self.spend(1 + node.keywords)?;
        self.compare(node, value)?;
        if let Mode::Errors { copied } = mode {
            self.spend(node.repeated)?;
            if copied {
                // Whatever is wrong, the value is copied for it.
                self.spend(weight(value).saturating_mul(1 + node.keywords))?;
            }
        }
        for (applied, child) in &node.in_place {
            match (applied, mode) {
                (Applied::Tested, _) => self.fit(*child, value, Mode::Verdict, depth)?,
                (Applied::Alternative, Mode::Errors { .. }) => {
                    self.fit(*child, value, Mode::Verdict, depth)?;
                    self.fit(*child, value, Mode::Errors { copied: true }, depth)?;
                }
                (_, mode) => self.fit(*child, value, mode, depth)?,
            }
        }
        match value {
            Value::Object(members) => {
                self.spend(members.len() as u64 / 8)?;
                for (name, child) in &node.dependent {
                    if members.contains_key(name) {
                        self.fit(*child, value, mode, depth)?;
                    }
                }
                for (name, member) in members {
                    self.member(node, name, member, mode, depth)?;
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let prefix = node.prefix_items.get(at);
                    let rest = node.items.iter().filter(|_| prefix.is_none());
                    for child in prefix.into_iter().chain(rest).chain(&node.unevaluated_items) {
                        self.fit(*child, item, mode, depth)?;
                    }
                    if let Some(contains) = node.contains {
                        self.fit(contains, item, Mode::Verdict, depth)?;
                    }
                }
            }
            _ => {}
        }
        if node.has_unevaluated() {
            self.mark(node, value, depth)?;
        }
        Ok(())
    }

    fn member(
        &mut self,
        node: &Node,
        name: &str,
        member: &Value,
        mode: Mode,
        depth: u64,
    ) -> Result<(), TooCostly> {
        let named = node.properties.get(name);
        let others = node.additional_properties.iter().filter(|_| named.is_none());
        for child in named.into_iter().chain(others).chain(&node.unevaluated_properties) {
            self.fit(*child, member, mode, depth)?;
        }
        for (pattern, child) in &node.pattern_properties {
            self.spend(pattern.steps(name))?;
            self.fit(*child, member, mode, depth)?;
        }
        if let Some(names) = node.property_names {
            self.spend(name.len() as u64 / BYTES_PER_STEP)?;
            let mode = if mode == Mode::Verdict { mode } else { Mode::Errors { copied: true } };
            self.fit(names, &Value::from(name), mode, depth)?;
        }
        Ok(())
    }

    /// Walks through what finding out takes what of a value the parts of a schema have looked at. It tries each of them
    /// anew, at every level.
    fn mark(&mut self, node: &Node, value: &Value, depth: u64) -> Result<(), TooCostly> {
        let depth = depth.checked_sub(1).ok_or(TooCostly::Depth)?;
        let nodes = self.nodes;
        self.spend(1)?;
        for child in node.on_same_value() {
            self.fit(child, value, Mode::Verdict, depth)?;
            self.mark(&nodes[child], value, depth)?;
        }
        match value {
            Value::Object(members) => {
                self.spend(members.len() as u64)?;
                for (name, member) in members {
                    for (pattern, _) in &node.pattern_properties {
                        self.spend(pattern.steps(name))?;
                    }
                    if let Some(child) = node.unevaluated_properties {
                        self.fit(child, member, Mode::Verdict, depth)?;
                    }
                }
            }
            Value::Array(items) => {
                self.spend(items.len() as u64)?;
                for item in items {
                    for child in node.contains.iter().chain(&node.unevaluated_items) {
                        self.fit(*child, item, Mode::Verdict, depth)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Spends what comparing the value itself takes.
    fn compare(&mut self, node: &Node, value: &Value) -> Result<(), TooCostly> {
        self.spend(node.options / 8)?;
        if node.meta {
            self.spend(weight(value).saturating_mul(META_STEPS))?;
        }
        match value {
            Value::String(text) => {
                if node.reads_text {
                    self.spend(text.len() as u64 / BYTES_PER_STEP)?;
                }
                if let Some(pattern) = node.pattern {
                    self.spend(pattern.steps(text))?;
                }
            }
            value if is_nested(value) => {
                let items = value.as_array().map_or(0, |items| items.len() as u64);
                let unique = if node.unique_items { items.min(PAIRWISE_MAX) } else { 0 };
                let times = node.nested_options.saturating_add(unique);
                if times > 0 {
                    self.spend(weight(value).saturating_mul(times))?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "cost_tests.rs"]
mod tests;
