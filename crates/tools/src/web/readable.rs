//! Which part of a page its readers came for.
//!
//! Elements that say what they are (`main`, `article`, `nav`) are believed; where there are none, the part with most
//! running text wins. When in doubt more is kept: a model skips a menu more easily than it guesses a lost paragraph.

use super::page::{Id, Page};
use super::tag::{Tag, Want};

/// Less running text than this is no article.
const ARTICLE_CHARS_MIN: usize = 140;
/// A paragraph that counts.
const PARAGRAPH_CHARS_MIN: usize = 25;
/// Class names and ids of what surrounds an article.
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
/// Names that an article goes by.
const WITHIN: [&str; 6] = ["article", "content", "main", "entry", "post", "story"];
/// Roles of what surrounds an article.
const AROUND_ROLES: [&str; 6] = ["navigation", "banner", "contentinfo", "complementary", "search", "dialog"];

/// What is shown of a page: nodes below `root` whose `shown` is set.
pub(super) struct Shown {
    pub(super) root: Id,
    pub(super) shown: Vec<bool>,
}

/// Letters below each node, and those of them in links.
struct Letters {
    all: Vec<usize>,
    linked: Vec<usize>,
}

impl Letters {
    fn unlinked(&self, id: Id) -> usize {
        self.all[id] - self.linked[id].min(self.all[id])
    }

    fn is_mostly_links(&self, id: Id) -> bool {
        self.linked[id] * 2 > self.all[id]
    }
}

/// Chooses what is shown.
pub(super) fn readable(page: &Page) -> Shown {
    let letters = letters(page);
    let root = declared(page, &letters).or_else(|| densest(page, &letters)).unwrap_or(0);
    let mut shown = kept(page, root, &letters);
    // Rather too much than nothing: a page of links is a page.
    let visible: usize = texts(page).filter(|(id, _)| shown[*id]).map(|(_, count)| count).sum();
    if visible * 20 < letters.all[0] {
        shown.fill(true);
        return Shown { root: 0, shown };
    }
    Shown { root, shown }
}

fn texts(page: &Page) -> impl Iterator<Item = (Id, usize)> + '_ {
    (0..page.len()).filter_map(|id| {
        let text = page.text(id)?;
        Some((id, text.chars().filter(|c| !c.is_whitespace()).count()))
    })
}

fn letters(page: &Page) -> Letters {
    let mut all = vec![0; page.len()];
    let mut linked = vec![0; page.len()];
    for (id, count) in texts(page) {
        all[id] = count;
    }
    // Children come after their parents, so one way back adds everything up.
    for id in (1..page.len()).rev() {
        if page.tag(id) == Some(Tag::A) {
            linked[id] = all[id];
        }
        let parent = page.parent(id);
        all[parent] += all[id];
        linked[parent] += linked[id];
    }
    Letters { all, linked }
}

/// Returns the element that the page itself calls its content.
fn declared(page: &Page, letters: &Letters) -> Option<Id> {
    let is_main = |id: Id| page.tag(id) == Some(Tag::Main) || page.attribute(id, Want::Role) == "main";
    let is_article = |id: Id| page.tag(id) == Some(Tag::Article);
    let largest = |is: &dyn Fn(Id) -> bool| {
        let found = (0..page.len()).filter(|id| is(*id) && letters.unlinked(*id) >= ARTICLE_CHARS_MIN);
        found.max_by_key(|id| letters.unlinked(*id))
    };
    if let Some(main) = largest(&is_main) {
        return Some(main);
    }
    // One article among many is a teaser on a front page.
    let article = largest(&is_article)?;
    let articles: usize = (0..page.len()).filter(|id| is_article(*id)).map(|id| letters.unlinked(id)).sum();
    (letters.unlinked(article) * 10 >= articles * 6).then_some(article)
}

/// Returns the element with most running text.
fn densest(page: &Page, letters: &Letters) -> Option<Id> {
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
    // As long as what is around has much more text, the best was only a part of it.
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

/// Marks what is shown below `root`.
fn kept(page: &Page, root: Id, letters: &Letters) -> Vec<bool> {
    let mut shown = vec![false; page.len()];
    shown[root] = true;
    for id in root + 1..page.len() {
        shown[id] = shown[page.parent(id)] && !is_around(page, id, root, letters);
    }
    shown
}

fn is_around(page: &Page, id: Id, root: Id, letters: &Letters) -> bool {
    // The greater part of what is there is not beside the point, whatever it is called.
    if letters.all[id] * 2 > letters.all[root] {
        return false;
    }
    match page.tag(id) {
        Some(Tag::Nav | Tag::Footer) => return true,
        // Within an article, it is the article's own.
        Some(Tag::Aside) if page.tag(root) != Some(Tag::Article) => return true,
        Some(Tag::Header | Tag::Form) if letters.is_mostly_links(id) => return true,
        _ => {}
    }
    if AROUND_ROLES.contains(&page.attribute(id, Want::Role)) {
        return true;
    }
    let (class, name) = (page.attribute(id, Want::Class), page.attribute(id, Want::Id));
    if class.is_empty() && name.is_empty() {
        return false;
    }
    let names = format!("{class} {name}").to_ascii_lowercase();
    AROUND.iter().any(|name| names.contains(name))
        && !WITHIN.iter().any(|name| names.contains(name))
        && page.tag(id).is_some_and(Tag::is_block)
        && (letters.is_mostly_links(id) || letters.all[id] * 5 < letters.all[root])
}
