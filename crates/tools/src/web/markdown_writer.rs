//! Writes Markdown lines with quote and list prefixes.

/// The markup of an inline span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InlineMark {
    None,
    Strong,
    Em,
    Del,
    Code,
    Link(String),
    Image(String),
}

/// Whether a blank line comes before a list item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemSpacing {
    Apart,
    Tight,
}

enum Prefix {
    Quote {
        begun: bool,
    },
    /// The marker precedes the first line; the others are indented to match.
    Item {
        marker: String,
        used: bool,
        spacing: ItemSpacing,
    },
}

#[derive(Default)]
pub(super) struct MarkdownWriter {
    out: String,
    line: String,
    /// Pending white space, written when text follows.
    space: bool,
    heading: Option<usize>,
    prefixes: Vec<Prefix>,
    /// Number of taken lines. A span from before the last one has lost its beginning.
    taken: usize,
}

impl MarkdownWriter {
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Adds text, with white space collapsed.
    pub(super) fn text(&mut self, text: &str) {
        for c in text.chars() {
            if c.is_whitespace() {
                self.space = true;
            } else {
                self.put_space();
                self.line.push(c);
            }
        }
    }

    pub(super) fn newline(&mut self) {
        self.space = false;
        if !self.line.is_empty() {
            self.line.push('\n');
        }
    }

    fn put_space(&mut self) {
        let wanted =
            std::mem::take(&mut self.space) && !self.line.is_empty() && !self.line.ends_with([' ', '\n']);
        if wanted {
            self.line.push(' ');
        }
    }

    /// Begins a span; returns the arguments of [`MarkdownWriter::end`].
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.put_space();
        (self.line.len(), self.taken)
    }

    pub(super) fn end(&mut self, start: usize, taken: usize, mark: &InlineMark) {
        if taken != self.taken || *mark == InlineMark::None || start > self.line.len() {
            return;
        }
        let inner = self.line.split_off(start);
        let text = inner.trim();
        if text.is_empty() {
            return;
        }
        if inner.starts_with(char::is_whitespace) {
            self.line.push(' ');
        }
        match mark {
            InlineMark::None => self.line.push_str(text),
            InlineMark::Strong => self.line.extend(["**", text, "**"]),
            InlineMark::Em => self.line.extend(["*", text, "*"]),
            InlineMark::Del => self.line.extend(["~~", text, "~~"]),
            InlineMark::Code if text.contains('`') => self.line.extend(["`` ", text, " ``"]),
            InlineMark::Code => self.line.extend(["`", text, "`"]),
            InlineMark::Link(address) => {
                self.line.extend(["[", &text.replace('\n', " "), "](", address, ")"])
            }
            InlineMark::Image(address) => {
                self.line.extend(["![", &text.replace('\n', " "), "](", address, ")"])
            }
        }
        if inner.ends_with(char::is_whitespace) {
            self.space = true;
        }
    }

    pub(super) fn heading(&mut self, level: usize) {
        self.heading = Some(level);
    }

    pub(super) fn quote(&mut self) {
        self.prefixes.push(Prefix::Quote { begun: false });
    }

    pub(super) fn item(&mut self, marker: String, spacing: ItemSpacing) {
        self.prefixes.push(Prefix::Item { marker, used: false, spacing });
    }

    pub(super) fn outdent(&mut self) {
        self.prefixes.pop();
    }

    /// Returns the line and begins a new one.
    pub(super) fn take_line(&mut self) -> String {
        self.space = false;
        self.heading = None;
        self.taken += usize::from(!self.line.is_empty());
        std::mem::take(&mut self.line)
    }

    /// Writes the line as a block.
    pub(super) fn flush(&mut self) {
        let heading = self.heading;
        let line = self.take_line();
        let line = line.trim();
        match heading {
            _ if line.is_empty() => {}
            Some(level) => self.block(&format!("{} {}", "#".repeat(level), line.replace('\n', " "))),
            None => self.block(line),
        }
    }

    /// Writes a block of lines with prefixes.
    pub(super) fn block(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
            // List items follow each other without a blank line.
            let is_next_item = matches!(
                self.prefixes.last(),
                Some(Prefix::Item { used: false, spacing: ItemSpacing::Tight, .. })
            );
            if !is_next_item {
                let gap: String = self.prefixes.iter().map(Prefix::gap).collect();
                self.out.push_str(gap.trim_end());
                self.out.push('\n');
            }
        }
        for (at, line) in text.lines().enumerate() {
            if at > 0 {
                self.out.push('\n');
            }
            let prefix: String = self.prefixes.iter_mut().map(Prefix::next).collect();
            // No trailing blanks in an empty line.
            self.out.push_str(if line.is_empty() { prefix.trim_end() } else { &prefix });
            self.out.push_str(line);
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

impl Prefix {
    /// Returns the prefix of the next line.
    fn next(&mut self) -> String {
        match self {
            Prefix::Quote { begun } => {
                *begun = true;
                "> ".to_owned()
            }
            Prefix::Item { marker, used: true, .. } => " ".repeat(marker.len()),
            Prefix::Item { marker, used, .. } => {
                *used = true;
                marker.clone()
            }
        }
    }

    /// Returns the prefix of a blank line between two blocks.
    fn gap(&self) -> &'static str {
        match self {
            Prefix::Quote { begun: true } => "> ",
            Prefix::Quote { begun: false } => "",
            Prefix::Item { .. } => "  ",
        }
    }
}
