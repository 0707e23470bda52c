//! HTML tree with bounds, built from tokens.
//!
//! Pages are hostile: the usual parsers recurse, or take quadratic time in the depth. Here nodes are in one list in
//! document order, a parent always before its children, so every traversal is a loop. Nodes deeper than
//! [`DEPTH_MAX`] are attached at that depth; nodes after [`NODES_MAX`] are left out.

use super::ConversionBudget;
use super::tag::{AttributeUse, Tag};
use html5gum::emitters::callback::{CallbackEmitter, CallbackEvent};
use html5gum::{Span, Tokenizer};

/// Deeper than pages that people write.
const DEPTH_MAX: usize = 256;
/// A long page has 20,000. At 16 bytes each, a tree takes 4 MB.
const NODES_MAX: usize = 250_000;
/// Longer than any URL in use; a longer value is dropped.
const VALUE_BYTES_MAX: usize = 4 * 1024;
/// Tags between two checks of the time limit.
const STRIDE: usize = 512;

/// The index of a node. The root is 0.
pub(super) type NodeId = usize;

#[derive(Debug, Clone, Copy)]
pub(super) enum NodeKind {
    /// With the range of its attributes in [`Page::attributes`].
    Element { tag: Tag, first: u32, count: u8 },
    /// A range of [`Page::text`].
    Text { start: u32, end: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Node {
    parent: u32,
    kind: NodeKind,
}

#[derive(Debug, Clone, Copy)]
struct Attribute {
    name: AttributeUse,
    start: u32,
    end: u32,
}

#[derive(Debug, Default)]
pub(super) struct PageTree {
    nodes: Vec<Node>,
    attributes: Vec<Attribute>,
    text: String,
    pub(super) title: String,
    /// The `og:title`, for a page without a title.
    pub(super) social_title: String,
    /// The `<base>` of relative URLs.
    pub(super) base: Option<String>,
    /// Whether something was left out.
    pub(super) cut: bool,
}

impl PageTree {
    /// Parses a page. Stops early at the node limit or when `budget` is spent.
    pub(super) fn parse(html: &str, budget: &ConversionBudget) -> PageTree {
        let mut builder = TreeBuilder::new();
        let mut emitter = CallbackEmitter::new(|event: CallbackEvent<'_>, _: Span<()>| builder.take(event));
        emitter.naively_switch_states(true);
        let mut tokens = Tokenizer::new_with_emitter(html, emitter);
        let mut cut = false;
        for (count, Ok(goes_on)) in tokens.by_ref().enumerate() {
            if !goes_on || (count % STRIDE == 0 && budget.is_spent()) {
                cut = true;
                break;
            }
        }
        drop(tokens);
        let mut page = builder.page;
        page.cut |= cut;
        page
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn parent(&self, id: NodeId) -> NodeId {
        self.nodes[id].parent as usize
    }

    pub(super) fn tag(&self, id: NodeId) -> Option<Tag> {
        match self.nodes[id].kind {
            NodeKind::Element { tag, .. } => Some(tag),
            NodeKind::Text { .. } => None,
        }
    }

    pub(super) fn text(&self, id: NodeId) -> Option<&str> {
        match self.nodes[id].kind {
            NodeKind::Element { .. } => None,
            NodeKind::Text { start, end } => Some(&self.text[start as usize..end as usize]),
        }
    }

    /// Returns an attribute; a missing one is empty.
    pub(super) fn attribute(&self, id: NodeId, name: AttributeUse) -> &str {
        let NodeKind::Element { first, count, .. } = self.nodes[id].kind else { return "" };
        let attributes = &self.attributes[first as usize..first as usize + usize::from(count)];
        let found = attributes.iter().find(|attribute| attribute.name == name);
        found.map_or("", |found| &self.text[found.start as usize..found.end as usize])
    }
}

/// Returns an offset in a page. Pages are far smaller than 4 GB, see `BODY_BYTES_MAX` of the egress client.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// An open element.
struct OpenElement {
    tag: Tag,
    /// `None` if the element is dropped.
    id: Option<NodeId>,
}

struct TreeBuilder {
    page: PageTree,
    open: Vec<OpenElement>,
    /// Open elements by tag, so that an unmatched end tag costs nothing.
    open_by_tag: [u32; Tag::COUNT],
    /// Open elements that are not shown; their content is dropped.
    dropped: usize,
    /// Open elements beyond the maximum depth.
    beyond: usize,
    started: Option<Tag>,
    attribute: AttributeUse,
    /// Index of the first attribute of the current tag.
    attributes_from: usize,
    hidden: bool,
    meta_key: String,
    value: String,
}

impl TreeBuilder {
    fn new() -> TreeBuilder {
        let root = Node { parent: 0, kind: NodeKind::Element { tag: Tag::Other, first: 0, count: 0 } };
        TreeBuilder {
            page: PageTree { nodes: vec![root], ..PageTree::default() },
            open: vec![OpenElement { tag: Tag::Other, id: Some(0) }],
            open_by_tag: [0; Tag::COUNT],
            dropped: 0,
            beyond: 0,
            started: None,
            attribute: AttributeUse::Nothing,
            attributes_from: 0,
            hidden: false,
            meta_key: String::new(),
            value: String::new(),
        }
    }

    /// Handles one event; for a tag or text, returns whether to continue.
    fn take(&mut self, event: CallbackEvent<'_>) -> Option<bool> {
        match event {
            CallbackEvent::OpenStartTag { name } => {
                self.started = Some(Tag::of(name));
                self.attributes_from = self.page.attributes.len();
                self.hidden = false;
                self.meta_key.clear();
                self.value.clear();
                return None;
            }
            CallbackEvent::AttributeName { name } => {
                self.attribute = AttributeUse::of(name);
                // An attribute without a value.
                self.hidden |= self.attribute == AttributeUse::Hidden;
                return None;
            }
            CallbackEvent::AttributeValue { value } => {
                self.value(value);
                return None;
            }
            CallbackEvent::CloseStartTag { self_closing } => {
                if let Some(tag) = self.started.take() {
                    self.start(tag, self_closing);
                }
            }
            CallbackEvent::EndTag { name } => {
                self.started = None;
                self.end(Tag::of(name));
            }
            CallbackEvent::String { value } => self.string(value),
            CallbackEvent::Comment { .. } | CallbackEvent::Doctype { .. } | CallbackEvent::Error(_) => {
                return None;
            }
        }
        Some(self.page.nodes.len() < NODES_MAX)
    }

    fn value(&mut self, value: &[u8]) {
        if self.started.is_none() || self.attribute == AttributeUse::Nothing || value.len() > VALUE_BYTES_MAX
        {
            return;
        }
        let text = String::from_utf8_lossy(value);
        match self.attribute {
            AttributeUse::MetaKey => self.meta_key = text.into_owned(),
            AttributeUse::MetaValue => self.value = text.into_owned(),
            AttributeUse::AriaHidden => self.hidden |= text.eq_ignore_ascii_case("true"),
            AttributeUse::Style => self.hidden |= is_hiding(&text),
            AttributeUse::Hidden | AttributeUse::Nothing => {}
            name => {
                let start = place(self.page.text.len());
                self.page.text.push_str(&text);
                self.page.attributes.push(Attribute { name, start, end: place(self.page.text.len()) });
            }
        }
    }

    fn start(&mut self, tag: Tag, self_closing: bool) {
        match tag {
            Tag::Meta
                if self.meta_key.eq_ignore_ascii_case("og:title") && self.page.social_title.is_empty() =>
            {
                self.page.social_title = std::mem::take(&mut self.value);
            }
            Tag::Base if self.page.base.is_none() => {
                let found = self.page.attributes[self.attributes_from..]
                    .iter()
                    .find(|found| found.name == AttributeUse::Href);
                self.page.base =
                    found.map(|href| self.page.text[href.start as usize..href.end as usize].to_owned());
            }
            _ => {}
        }
        self.close_implied(tag);
        if tag.is_void() || (self_closing && tag.is_foreign()) {
            if self.dropped == 0 && !self.hidden && tag.is_shown() {
                self.add(tag);
            }
            return;
        }
        if self.open.len() >= DEPTH_MAX {
            self.beyond += 1;
            return;
        }
        let is_dropped = self.dropped > 0 || self.hidden || !tag.is_shown();
        let id = (!is_dropped).then(|| self.add(tag));
        self.dropped += usize::from(is_dropped);
        self.open_by_tag[tag as usize] += 1;
        self.open.push(OpenElement { tag, id });
    }

    /// Adds a node below the innermost kept element.
    fn add(&mut self, tag: Tag) -> NodeId {
        let count = self.page.attributes.len() - self.attributes_from;
        let count = u8::try_from(count).unwrap_or(u8::MAX);
        self.push(NodeKind::Element { tag, first: place(self.attributes_from), count })
    }

    fn push(&mut self, kind: NodeKind) -> NodeId {
        let parent = self.open.last().and_then(|open| open.id).unwrap_or_default();
        self.page.nodes.push(Node { parent: place(parent), kind });
        self.page.nodes.len() - 1
    }

    /// Closes elements with an implied end tag: a paragraph before a block, an item before the next.
    fn close_implied(&mut self, tag: Tag) {
        if self.beyond > 0 {
            return;
        }
        if tag.is_block() && self.open_by_tag[Tag::P as usize] > 0 {
            self.close_within(Tag::P, Tag::holds_paragraphs);
        }
        match tag {
            Tag::Li => self.close_within(Tag::Li, |tag| matches!(tag, Tag::Ul | Tag::Ol)),
            Tag::Dt | Tag::Dd => {
                self.close_within(Tag::Dt, |tag| tag == Tag::Dl);
                self.close_within(Tag::Dd, |tag| tag == Tag::Dl);
            }
            Tag::Tr => self.close_within(Tag::Tr, |tag| tag == Tag::Table),
            Tag::Td | Tag::Th => {
                self.close_within(Tag::Td, |tag| matches!(tag, Tag::Table | Tag::Tr));
                self.close_within(Tag::Th, |tag| matches!(tag, Tag::Table | Tag::Tr));
            }
            Tag::A => self.close_within(Tag::A, Tag::is_block),
            _ => {}
        }
    }

    /// Closes the innermost `tag`, unless an open element within it `shields` it.
    fn close_within(&mut self, tag: Tag, shields: impl Fn(Tag) -> bool) {
        if self.open_by_tag[tag as usize] == 0 {
            return;
        }
        for at in (1..self.open.len()).rev() {
            if self.open[at].tag == tag {
                return self.close_down_to(at);
            }
            if shields(self.open[at].tag) {
                return;
            }
        }
    }

    fn end(&mut self, tag: Tag) {
        if tag.is_void() {
            return;
        }
        if self.beyond > 0 {
            self.beyond -= 1;
            return;
        }
        if tag.is_block() || !tag.is_shown() {
            // An end tag in a cell cannot close the table around it.
            self.close_within(tag, |open| matches!(open, Tag::Td | Tag::Th) && !tag.is_of_table());
        } else {
            self.close_within(tag, Tag::is_block);
        }
    }

    fn close_down_to(&mut self, at: usize) {
        for closed in self.open.drain(at..) {
            self.open_by_tag[closed.tag as usize] -= 1;
            self.dropped -= usize::from(closed.id.is_none());
        }
    }

    fn string(&mut self, value: &[u8]) {
        let text = String::from_utf8_lossy(value);
        // The title is in the head, which is not shown.
        if self.open.last().is_some_and(|open| open.tag == Tag::Title) {
            if self.page.title.is_empty() && self.open_by_tag[Tag::Svg as usize] == 0 {
                self.page.title = text.chars().take(VALUE_BYTES_MAX).collect();
            }
            return;
        }
        if self.dropped > 0 {
            return;
        }
        let start = self.page.text.len();
        self.page.text.push_str(&text);
        self.push(NodeKind::Text { start: place(start), end: place(self.page.text.len()) });
    }
}

/// Returns whether a style hides its element. A model should not read what a person would not see.
fn is_hiding(style: &str) -> bool {
    let style: String = style.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    ["display:none", "visibility:hidden", "font-size:0;", "opacity:0;"]
        .iter()
        .any(|hides| style.contains(hides))
        || style.ends_with("font-size:0")
        || style.ends_with("opacity:0")
}
