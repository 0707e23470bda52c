//! The cost of validating a value, counted in steps before the validation.
//!
//! The validator has no budget, and a short schema can demand exponential work: forty definitions that each reference the
//! next one twice. So this walk applies every subschema to every value it could be applied to, without deciding anything.
//! It stops when the budget is exhausted, and then the validation never runs. It also bounds the recursion depth of the
//! validator. Invariant: the count is never below the real work.

use super::compile_steps::{COMPILED_MAX, compile_steps};
use super::graph::{Applied, BYTES_PER_STEP, Node, SchemaNodeId, graph, is_nested, weight};
use serde_json::Value;

/// Step budget of one validation. A step is some ten nanoseconds, at most a hundred with overhead.
pub const STEPS_MAX: u64 = 10_000_000;
/// Step budget for collecting errors. Each step may keep an error in memory.
pub const ERROR_STEPS_MAX: u64 = 100_000;
/// Step budget of a schema for any single value, not counting its children.
const STEPS_PER_VALUE_MAX: u64 = 100_000;
/// Maximum nesting of subschemas applied to one value.
const NESTED_PER_VALUE_MAX: u64 = 128;
/// Maximum nesting of subschemas in total. The validator recurses as deep, on a stack of two megabytes.
const NESTED_MAX: u64 = 512;
/// Budget of regex states over all patterns of a schema. Each compiles to some ten bytes.
const PATTERN_STATES_MAX: u64 = 1_000_000;
/// Steps per part of a value that must match the meta-schema.
const META_STEPS: u64 = 256;
/// Arrays up to this size are compared pairwise; larger ones by hash.
const PAIRWISE_MAX: u64 = 16;

/// Why a validation is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooCostly {
    #[error("it takes more than {0} steps")]
    Steps(u64),
    #[error("subschemas lead to each other more than {NESTED_MAX} times")]
    Depth,
}

/// The cost model of a schema.
pub struct Cost {
    nodes: Vec<Node>,
}

impl Cost {
    /// Analyzes a schema. A schema that no value could be validated against within the budget is an error.
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

    /// Returns the steps of a validation without errors.
    pub fn steps(&self, value: &Value, steps_max: u64) -> Result<u64, TooCostly> {
        let mut walk = Walk { nodes: &self.nodes, left: steps_max, steps_max };
        walk.fit(0, value, Mode::Verdict, NESTED_MAX)?;
        Ok(steps_max - walk.left)
    }

    /// Returns the steps of collecting all errors of a value.
    pub fn error_steps(&self, value: &Value, steps_max: u64) -> Result<u64, TooCostly> {
        let mut walk = Walk { nodes: &self.nodes, left: steps_max, steps_max };
        walk.fit(0, value, Mode::Errors { copied: false }, NESTED_MAX)?;
        Ok(steps_max - walk.left)
    }

    /// Returns the steps of a subschema on one value, not counting the value's children.
    fn bound(&self, id: SchemaNodeId, bounds: &mut [Bound], depth_left: u64) -> Result<Steps, String> {
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
    /// On the current path.
    Open,
    Known(Steps),
}

#[derive(Clone, Copy)]
struct Steps {
    fit: u64,
    /// Steps to find the evaluated parts, for `unevaluated*`.
    mark: u64,
    height: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Verdict,
    /// Collects all errors; those of alternatives include a copy of the value.
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

    /// Counts the validation of a value against a subschema.
    fn fit(&mut self, id: SchemaNodeId, value: &Value, mode: Mode, depth: u64) -> Result<(), TooCostly> {
        let depth = depth.checked_sub(1).ok_or(TooCostly::Depth)?;
        let nodes = self.nodes;
        let node = &nodes[id];
        self.spend(1 + node.keywords)?;
        self.compare(node, value)?;
        if let Mode::Errors { copied } = mode {
            self.spend(node.repeated)?;
            if copied {
                // Each error holds a copy of the value.
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

    /// Counts the search for the evaluated parts of a value. The validator evaluates each subschema again, at every level.
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

    /// Counts the comparison of the value itself.
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
