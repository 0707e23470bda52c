//! A page as Markdown.
//!
//! One walk over the nodes in the order of the document; nothing recurses.

use super::Budget;
use super::lines::{Lines, Mark};
use super::page::{Id, Page};
use super::readable::Shown;
use super::table::{self, Table};
use super::tag::{Tag, Want};
use url::Url;

/// No caller reads more; what a page repeats in each line of a deep list ends here.
const MARKDOWN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The longest run of backticks that a fence outdoes.
const FENCE_MAX: usize = 20;
/// Nodes between two looks at the clock.
const STRIDE: usize = 512;

/// Text that becomes something when it ends.
struct Span {
    start: usize,
    /// How often the line had been written out when it began.
    line: usize,
    mark: Mark,
}

struct Walk<'a> {
    page: &'a Page,
    base: &'a Url,
    is_data: &'a [bool],
    lines: Lines,
    spans: Vec<Span>,
    lists: Vec<List>,
    pre: Option<(String, String)>,
    table: Option<Table>,
}

struct List {
    /// The number of the next item, where they have one.
    number: Option<u64>,
    items: usize,
}

/// Returns the shown part of a page as Markdown, and whether it is complete.
pub(super) fn markdown(page: &Page, shown: &Shown, base: &Url, budget: &Budget) -> (String, bool) {
    let is_data = table::data_tables(page, &shown.shown);
    let mut walk = Walk {
        page,
        base,
        is_data: &is_data,
        lines: Lines::default(),
        spans: Vec::new(),
        lists: Vec::new(),
        pre: None,
        table: None,
    };
    let complete = walk.run(shown, budget);
    (walk.lines.finish(), complete)
}

impl Walk<'_> {
    fn run(&mut self, shown: &Shown, budget: &Budget) -> bool {
        let mut open: Vec<Id> = vec![shown.root];
        let mut complete = true;
        for id in shown.root + 1..self.page.len() {
            let parent = self.page.parent(id);
            // Descendants lie together, so the first that is none ends it.
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

    fn enter(&mut self, id: Id, tag: Tag) {
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
                Some(address) => self.begin(Mark::Link(address)),
                None => self.begin(Mark::None),
            },
            Tag::Strong | Tag::Dt => self.begin(Mark::Strong),
            Tag::Em => self.begin(Mark::Em),
            Tag::Del => self.begin(Mark::Del),
            Tag::Code => self.begin(Mark::Code),
            Tag::Pre => self.pre = Some((String::new(), self.language(id))),
            Tag::Blockquote => self.lines.quote(),
            Tag::Ul => self.lists.push(List { number: None, items: 0 }),
            Tag::Ol => self.lists.push(List { number: Some(self.first_number(id)), items: 0 }),
            Tag::Li => self.item(),
            Tag::Dd => self.lines.item(": ".to_owned(), true),
            Tag::Table if self.is_data[id] && self.table.is_none() => self.table = Some(Table::default()),
            Tag::Tr => self.with_table(Table::row),
            Tag::Td => self.with_table(|table| table.cell(false)),
            Tag::Th => self.with_table(|table| table.cell(true)),
            _ => {
                if let Some(level) = tag.heading() {
                    self.lines.heading(level);
                }
            }
        }
    }

    fn within_code(&mut self, id: Id, tag: Tag) {
        let named = self.language(id);
        match &mut self.pre {
            Some((code, _)) if tag == Tag::Br => code.push('\n'),
            Some((_, language)) if tag == Tag::Code && language.is_empty() => *language = named,
            _ => {}
        }
    }

    fn leave(&mut self, id: Id) {
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

    fn with_table(&mut self, change: impl FnOnce(&mut Table)) {
        if let Some(table) = &mut self.table {
            change(table);
        }
    }

    /// Ends the line: as a block, or as part of a cell.
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

    fn begin(&mut self, mark: Mark) {
        let same = |span: &Span| std::mem::discriminant(&span.mark) == std::mem::discriminant(&mark);
        let mark = if self.spans.iter().any(same) { Mark::None } else { mark };
        let (start, line) = self.lines.begin();
        self.spans.push(Span { start, line, mark });
    }

    fn end(&mut self) {
        if let Some(span) = self.spans.pop() {
            self.lines.end(span.start, span.line, &span.mark);
        }
    }

    fn item(&mut self) {
        let (marker, first) = match self.lists.last_mut() {
            Some(list) => {
                list.items += 1;
                let marker = match &mut list.number {
                    Some(number) => {
                        *number = number.saturating_add(1);
                        format!("{}. ", *number - 1)
                    }
                    None => "- ".to_owned(),
                };
                (marker, list.items == 1 && self.lists.len() == 1)
            }
            None => ("- ".to_owned(), true),
        };
        self.lines.item(marker, first);
    }

    fn first_number(&self, id: Id) -> u64 {
        self.page.attribute(id, Want::Start).parse().unwrap_or(1)
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
        // A fence is longer than what it holds, within reason.
        let fence = if longest > FENCE_MAX { "~~~".to_owned() } else { "`".repeat(longest.max(2) + 1) };
        self.lines.block(&format!("{fence}{language}\n{code}\n{fence}"));
    }

    /// Returns the language of a code block, as highlighters write it in the class.
    fn language(&self, id: Id) -> String {
        let classes = self.page.attribute(id, Want::Class);
        let named = classes.split_whitespace().find_map(|class| {
            let prefixes = ["language-", "lang-", "highlight-source-", "brush:"];
            prefixes.iter().find_map(|prefix| class.strip_prefix(prefix))
        });
        let fits = |name: &&str| {
            name.len() <= 20 && name.chars().all(|c| c.is_ascii_alphanumeric() || "+-#_.".contains(c))
        };
        named.filter(fits).unwrap_or_default().to_owned()
    }

    fn link(&self, id: Id) -> Option<String> {
        let href = self.page.attribute(id, Want::Href).trim();
        // Within the page there is nowhere to go.
        if href.is_empty() || href.starts_with('#') {
            return None;
        }
        absolute(self.base, href, &["http", "https", "mailto"])
    }

    fn image(&mut self, id: Id) {
        let alt = self.page.attribute(id, Want::Alt).trim();
        if alt.is_empty() {
            return;
        }
        match absolute(self.base, self.page.attribute(id, Want::Src).trim(), &["http", "https"]) {
            Some(address) => {
                let (start, line) = self.lines.begin();
                self.lines.text(alt);
                self.lines.end(start, line, &Mark::Image(address));
            }
            None => self.lines.text(alt),
        }
    }
}

/// Returns an address as it can stand in Markdown.
fn absolute(base: &Url, href: &str, schemes: &[&str]) -> Option<String> {
    let url = base.join(href).ok().filter(|url| schemes.contains(&url.scheme()))?;
    Some(url.as_str().replace('(', "%28").replace(')', "%29"))
}
