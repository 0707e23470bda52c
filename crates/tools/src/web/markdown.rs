//! Renders a page as Markdown.
//!
//! One iterative walk over the nodes in document order; no recursion, so depth cannot overflow the stack.

use super::ConversionBudget;
use super::markdown_writer::{InlineMark, ItemSpacing, MarkdownWriter};
use super::page_tree::{NodeId, PageTree};
use super::readable::ReadableNodes;
use super::table::{self, CellKind, DataTable};
use super::tag::{AttributeUse, Tag};
use url::Url;

/// More than any caller reads; bounds the repetition of prefixes in deep lists.
const MARKDOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The longest run of backticks that a code fence exceeds.
const FENCE_MAX: usize = 20;
/// Nodes between two checks of the time limit.
const STRIDE: usize = 512;

/// An open inline span.
struct Span {
    start: usize,
    /// Number of flushed lines when it began.
    line: usize,
    mark: InlineMark,
}

struct MarkdownRenderer<'a> {
    page: &'a PageTree,
    base: &'a Url,
    is_data: &'a [bool],
    lines: MarkdownWriter,
    spans: Vec<Span>,
    lists: Vec<List>,
    pre: Option<(String, String)>,
    table: Option<DataTable>,
}

struct List {
    /// The number of the next item in an ordered list.
    number: Option<u64>,
    items: usize,
}

/// Returns the readable part of a page as Markdown, and whether it is complete.
pub(super) fn markdown(
    page: &PageTree,
    shown: &ReadableNodes,
    base: &Url,
    budget: &ConversionBudget,
) -> (String, bool) {
    let is_data = table::data_tables(page, &shown.shown);
    let mut walk = MarkdownRenderer {
        page,
        base,
        is_data: &is_data,
        lines: MarkdownWriter::default(),
        spans: Vec::new(),
        lists: Vec::new(),
        pre: None,
        table: None,
    };
    let complete = walk.run(shown, budget);
    (walk.lines.finish(), complete)
}

impl MarkdownRenderer<'_> {
    fn run(&mut self, shown: &ReadableNodes, budget: &ConversionBudget) -> bool {
        let mut open: Vec<NodeId> = vec![shown.root];
        let mut complete = true;
        for id in shown.root + 1..self.page.len() {
            let parent = self.page.parent(id);
            // Descendants are contiguous, so the first node outside ends the walk.
            if parent < shown.root {
                break;
            }
            if !shown.shown[id] {
                continue;
            }
            if self.lines.len() > MARKDOWN_BYTES_MAX || (id % STRIDE == 0 && budget.is_spent()) {
                complete = false;
                break;
            }
            while let Some(last) = open.pop_if(|last| *last != parent) {
                self.leave(last);
            }
            if let Some(text) = self.page.text(id) {
                self.text(text);
            } else if let Some(tag) = self.page.tag(id) {
                self.enter(id, tag);
                open.push(id);
            }
        }
        while let Some(last) = open.pop() {
            self.leave(last);
        }
        self.flush();
        complete
    }

    fn text(&mut self, text: &str) {
        match &mut self.pre {
            Some((code, _)) => code.push_str(text),
            None => self.lines.text(text),
        }
    }

    fn enter(&mut self, id: NodeId, tag: Tag) {
        if self.pre.is_some() {
            return self.within_code(id, tag);
        }
        if tag.is_block() {
            self.flush();
        }
        match tag {
            Tag::Br => self.lines.newline(),
            Tag::Hr => self.block("---"),
            Tag::Img => self.image(id),
            Tag::A => match self.link(id) {
                Some(address) => self.begin(InlineMark::Link(address)),
                None => self.begin(InlineMark::None),
            },
            Tag::Strong | Tag::Dt => self.begin(InlineMark::Strong),
            Tag::Em => self.begin(InlineMark::Em),
            Tag::Del => self.begin(InlineMark::Del),
            Tag::Code => self.begin(InlineMark::Code),
            Tag::Pre => self.pre = Some((String::new(), self.language(id))),
            Tag::Blockquote => self.lines.quote(),
            Tag::Ul => self.lists.push(List { number: None, items: 0 }),
            Tag::Ol => self.lists.push(List { number: Some(self.first_number(id)), items: 0 }),
            Tag::Li => self.item(),
            Tag::Dd => self.lines.item(": ".to_owned(), ItemSpacing::Apart),
            Tag::Table if self.is_data[id] && self.table.is_none() => self.table = Some(DataTable::default()),
            Tag::Tr => self.with_table(DataTable::row),
            Tag::Td => self.with_table(|table| table.cell(CellKind::Data)),
            Tag::Th => self.with_table(|table| table.cell(CellKind::Heading)),
            _ => {
                if let Some(level) = tag.heading() {
                    self.lines.heading(level);
                }
            }
        }
    }

    fn within_code(&mut self, id: NodeId, tag: Tag) {
        let named = self.language(id);
        match &mut self.pre {
            Some((code, _)) if tag == Tag::Br => code.push('\n'),
            Some((_, language)) if tag == Tag::Code && language.is_empty() => *language = named,
            _ => {}
        }
    }

    fn leave(&mut self, id: NodeId) {
        let Some(tag) = self.page.tag(id) else { return };
        if self.pre.is_some() {
            if tag == Tag::Pre {
                self.code();
            }
            return;
        }
        match tag {
            Tag::A | Tag::Strong | Tag::Em | Tag::Del | Tag::Code | Tag::Dt => self.end(),
            _ => {}
        }
        if tag.is_block() {
            self.flush();
        }
        match tag {
            Tag::Blockquote | Tag::Dd | Tag::Li => self.lines.outdent(),
            Tag::Ul | Tag::Ol => {
                self.lists.pop();
            }
            Tag::Table if self.is_data[id] => {
                if let Some(table) = self.table.take() {
                    self.lines.block(&table.markdown());
                }
            }
            _ => {}
        }
    }

    fn with_table(&mut self, change: impl FnOnce(&mut DataTable)) {
        if let Some(table) = &mut self.table {
            change(table);
        }
    }

    /// Ends the line: as a block, or as part of a table cell.
    fn flush(&mut self) {
        match &mut self.table {
            Some(table) => table.add(&self.lines.take_line()),
            None => self.lines.flush(),
        }
    }

    fn block(&mut self, text: &str) {
        match &mut self.table {
            Some(_) => {}
            None => self.lines.block(text),
        }
    }

    fn begin(&mut self, mark: InlineMark) {
        let same = |span: &Span| std::mem::discriminant(&span.mark) == std::mem::discriminant(&mark);
        let mark = if self.spans.iter().any(same) { InlineMark::None } else { mark };
        let (start, line) = self.lines.begin();
        self.spans.push(Span { start, line, mark });
    }

    fn end(&mut self) {
        if let Some(span) = self.spans.pop() {
            self.lines.end(span.start, span.line, &span.mark);
        }
    }

    fn item(&mut self) {
        let (marker, spacing) = match self.lists.last_mut() {
            Some(list) => {
                list.items += 1;
                let marker = match &mut list.number {
                    Some(number) => {
                        *number = number.saturating_add(1);
                        format!("{}. ", *number - 1)
                    }
                    None => "- ".to_owned(),
                };
                let is_first = list.items == 1 && self.lists.len() == 1;
                (marker, if is_first { ItemSpacing::Apart } else { ItemSpacing::Tight })
            }
            None => ("- ".to_owned(), ItemSpacing::Apart),
        };
        self.lines.item(marker, spacing);
    }

    fn first_number(&self, id: NodeId) -> u64 {
        self.page.attribute(id, AttributeUse::Start).parse().unwrap_or(1)
    }

    fn code(&mut self) {
        let Some((code, language)) = self.pre.take() else { return };
        let code = code.strip_prefix('\n').unwrap_or(&code).trim_end();
        if code.is_empty() {
            return;
        }
        if let Some(table) = &mut self.table {
            return table.add(&format!("`{}`", code.replace('\n', " ")));
        }
        let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        // A fence is longer than the backticks in its content, up to a limit.
        let fence = if longest > FENCE_MAX { "~~~".to_owned() } else { "`".repeat(longest.max(2) + 1) };
        self.lines.block(&format!("{fence}{language}\n{code}\n{fence}"));
    }

    /// Returns the language of a code block from the class of a highlighter.
    fn language(&self, id: NodeId) -> String {
        let classes = self.page.attribute(id, AttributeUse::Class);
        let named = classes.split_whitespace().find_map(|class| {
            let prefixes = ["language-", "lang-", "highlight-source-", "brush:"];
            prefixes.iter().find_map(|prefix| class.strip_prefix(prefix))
        });
        let fits = |name: &&str| {
            name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-#_.".contains(c))
        };
        named.filter(fits).unwrap_or_default().to_owned()
    }

    fn link(&self, id: NodeId) -> Option<String> {
        let href = self.page.attribute(id, AttributeUse::Href).trim();
        // Links within the page have no target in Markdown.
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        absolute(self.base, href, &["http", "https", "mailto"])
    }

    fn image(&mut self, id: NodeId) {
        let alt = self.page.attribute(id, AttributeUse::Alt).trim();
        if alt.is_empty() {
            return;
        }
        match absolute(self.base, self.page.attribute(id, AttributeUse::Src).trim(), &["http", "https"]) {
            Some(address) => {
                let (start, line) = self.lines.begin();
                self.lines.text(alt);
                self.lines.end(start, line, &InlineMark::Image(address));
            }
            None => self.lines.text(alt),
        }
    }
}

/// Returns an absolute URL, escaped for Markdown.
fn absolute(base: &Url, href: &str, schemes: &[&str]) -> Option<String> {
    let url = base.join(href).ok().filter(|url| schemes.contains(&url.scheme()))?;
    Some(url.as_str().replace('(', "%28").replace(')', "%29"))
}
