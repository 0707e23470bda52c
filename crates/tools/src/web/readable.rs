//! Readability: selects the main content of a page.
//!
//! Semantic elements (`main`, `article`, `nav`) are trusted; without them, the element with the most running text
//! wins. When in doubt more is kept: a model skips a menu more easily than it guesses a lost paragraph.

use super::page_tree::{NodeId, PageTree};
use super::tag::{AttributeUse, Tag};

/// Minimum text of an article.
const ARTICLE_CHARS_MIN: usize = 140;
/// Minimum text of a paragraph that scores.
const PARAGRAPH_CHARS_MIN: usize = 25;
/// Class names and ids of boilerplate.
const AROUND: [&str; 19] = [
    "sidebar",
    "breadcrumb",
    "cookie",
    "consent",
    "advert",
    "sponsor",
    "promo",
    "newsletter",
    "subscribe",
    "social",
    "share",
    "related",
    "recommend",
    "popup",
    "modal",
    "skip-link",
    "masthead",
    "pagination",
    "site-footer",
];
/// Class names and ids of articles.
const WITHIN: [&str; 6] = ["article", "content", "main", "entry", "post", "story"];
/// ARIA roles of boilerplate.
const AROUND_ROLES: [&str; 6] = ["navigation", "banner", "contentinfo", "complementary", "search", "dialog"];

/// The readable part: nodes below `root` with `shown` set.
pub(super) struct ReadableNodes {
    pub(super) root: NodeId,
    pub(super) shown: Vec<bool>,
}

/// Letters below each node, in all and within links.
struct LetterCounts {
    all: Vec<usize>,
    linked: Vec<usize>,
}

impl LetterCounts {
    fn unlinked(&self, id: NodeId) -> usize {
        self.all[id] - self.linked[id].min(self.all[id])
    }

    fn is_mostly_links(&self, id: NodeId) -> bool {
        self.linked[id] * 2 > self.all[id]
    }
}

/// Selects the readable part.
pub(super) fn readable(page: &PageTree) -> ReadableNodes {
    let letters = letters(page);
    let root = declared(page, &letters).or_else(|| densest(page, &letters)).unwrap_or(0);
    let mut shown = kept(page, root, &letters);
    // Rather too much than nothing: a page of links is a page.
    let visible: usize = texts(page).filter(|(id, _)| shown[*id]).map(|(_, count)| count).sum();
    if visible * 20 < letters.all[0] {
        shown.fill(true);
        return ReadableNodes { root: 0, shown };
    }
    ReadableNodes { root, shown }
}

fn texts(page: &PageTree) -> impl Iterator<Item = (NodeId, usize)> + '_ {
    (0..page.len()).filter_map(|id| {
        let text = page.text(id)?;
        Some((id, text.chars().filter(|c| !c.is_whitespace()).count()))
    })
}

fn letters(page: &PageTree) -> LetterCounts {
    let mut all = vec![0; page.len()];
    let mut linked = vec![0; page.len()];
    for (id, count) in texts(page) {
        all[id] = count;
    }
    // Children come after their parents, so one backward pass sums up everything.
    for id in (1..page.len()).rev() {
        if page.tag(id) == Some(Tag::A) {
            linked[id] = all[id];
        }
        let parent = page.parent(id);
        all[parent] += all[id];
        linked[parent] += linked[id];
    }
    LetterCounts { all, linked }
}

/// Returns the element that the page declares as its content.
fn declared(page: &PageTree, letters: &LetterCounts) -> Option<NodeId> {
    let is_main =
        |id: NodeId| page.tag(id) == Some(Tag::Main) || page.attribute(id, AttributeUse::Role) == "main";
    let is_article = |id: NodeId| page.tag(id) == Some(Tag::Article);
    let largest = |is: &dyn Fn(NodeId) -> bool| {
        let found = (0..page.len()).filter(|id| is(*id) && letters.unlinked(*id) >= ARTICLE_CHARS_MIN);
        found.max_by_key(|id| letters.unlinked(*id))
    };
    if let Some(main) = largest(&is_main) {
        return Some(main);
    }
    // One article of many is a teaser on a front page.
    let article = largest(&is_article)?;
    let articles: usize = (0..page.len()).filter(|id| is_article(*id)).map(|id| letters.unlinked(id)).sum();
    (letters.unlinked(article) * 10 >= articles * 6).then_some(article)
}

/// Returns the element with the most running text.
fn densest(page: &PageTree, letters: &LetterCounts) -> Option<NodeId> {
    let mut scores = vec![0.0_f64; page.len()];
    for id in 1..page.len() {
        let counts =
            matches!(page.tag(id), Some(Tag::P | Tag::Pre | Tag::Blockquote | Tag::Td | Tag::Dd | Tag::Li));
        if !counts || letters.all[id] < PARAGRAPH_CHARS_MIN || letters.is_mostly_links(id) {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "a score, of some thousand letters")]
        let score = 1.0 + (letters.unlinked(id) as f64 / 100.0).min(5.0);
        let parent = page.parent(id);
        let grandparent = page.parent(parent);
        scores[parent] += score;
        if grandparent != parent {
            scores[grandparent] += score / 2.0;
        }
    }
    let best =
        (0..scores.len()).filter(|id| scores[*id] > 0.0).max_by(|a, b| scores[*a].total_cmp(&scores[*b]))?;
    // While the parent has much more text, the best element is only a part of the content.
    let mut root = best;
    while root != 0 {
        let parent = page.parent(root);
        if letters.unlinked(parent) * 10 < letters.unlinked(root) * 14 {
            break;
        }
        root = parent;
    }
    let holds_text = letters.unlinked(best) >= ARTICLE_CHARS_MIN;
    holds_text.then_some(root)
}

/// Marks the nodes that are shown below `root`.
fn kept(page: &PageTree, root: NodeId, letters: &LetterCounts) -> Vec<bool> {
    let mut shown = vec![false; page.len()];
    shown[root] = true;
    for id in root + 1..page.len() {
        shown[id] = shown[page.parent(id)] && !is_around(page, id, root, letters);
    }
    shown
}

fn is_around(page: &PageTree, id: NodeId, root: NodeId, letters: &LetterCounts) -> bool {
    // An element with most of the text is content, regardless of its name.
    if letters.all[id] * 2 > letters.all[root] {
        return false;
    }
    match page.tag(id) {
        Some(Tag::Nav | Tag::Footer) => return true,
        // An aside within an article is part of it.
        Some(Tag::Aside) if page.tag(root) != Some(Tag::Article) => return true,
        Some(Tag::Header | Tag::Form) if letters.is_mostly_links(id) => return true,
        _ => {}
    }
    if AROUND_ROLES.contains(&page.attribute(id, AttributeUse::Role)) {
        return true;
    }
    let (class, name) = (page.attribute(id, AttributeUse::Class), page.attribute(id, AttributeUse::Id));
    if class.is_empty() && name.is_empty() {
        return false;
    }
    let names = format!("{class} {name}").to_ascii_lowercase();
    AROUND.iter().any(|name| names.contains(name))
        && !WITHIN.iter().any(|name| names.contains(name))
        && page.tag(id).is_some_and(Tag::is_block)
        && (letters.is_mostly_links(id) || letters.all[id] * 5 < letters.all[root])
}
