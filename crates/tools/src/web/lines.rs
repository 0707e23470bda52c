//! Lines of Markdown, with what stands in front of them.

/// What text becomes when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    Strong,
    Em,
    Del,
    Code,
    Link(String),
    Image(String),
}

enum Prefix {
    Quote {
        begun: bool,
    },
    /// The marker stands before the first line; the others are indented as far.
    Item {
        marker: String,
        used: bool,
        first: bool,
    },
}

#[derive(Default)]
pub(super) struct Lines {
    out: String,
    line: String,
    /// White space was seen; it counts when something follows.
    space: bool,
    heading: Option<usize>,
    prefixes: Vec<Prefix>,
    /// How many lines were taken away from `line`. A span that began before the last one lost its beginning.
    taken: usize,
}

impl Lines {
    pub(super) fn len(&self) -> usize {
        self.out.len()
    }

    /// Adds text; white space of any length is one blank.
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

    /// Begins a span; returns what [`Lines::end`] needs to know.
    pub(super) fn begin(&mut self) -> (usize, usize) {
        self.put_space();
        (self.line.len(), self.taken)
    }

    pub(super) fn end(&mut self, start: usize, taken: usize, mark: &Mark) {
        if taken != self.taken || *mark == Mark::None || start > self.line.len() {
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
            Mark::None => self.line.push_str(text),
            Mark::Strong => self.line.extend(["**", text, "**"]),
            Mark::Em => self.line.extend(["*", text, "*"]),
            Mark::Del => self.line.extend(["~~", text, "~~"]),
            Mark::Code if text.contains('`') => self.line.extend(["`` ", text, " ``"]),
            Mark::Code => self.line.extend(["`", text, "`"]),
            Mark::Link(address) => self.line.extend(["[", &text.replace('\n', " "), "](", address, ")"]),
            Mark::Image(address) => self.line.extend(["![", &text.replace('\n', " "), "](", address, ")"]),
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

    pub(super) fn item(&mut self, marker: String, first: bool) {
        self.prefixes.push(Prefix::Item { marker, used: false, first });
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

    /// Writes the line out as a block.
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

    /// Writes a block of lines, each behind its prefixes.
    pub(super) fn block(&mut self, text: &str) {
        if !self.out.is_empty() {
            self.out.push('\n');
            // Items of a list follow each other without a gap.
            let is_next_item =
                matches!(self.prefixes.last(), Some(Prefix::Item { used: false, first: false, .. }));
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
            // An empty line ends where its text does.
            self.out.push_str(if line.is_empty() { prefix.trim_end() } else { &prefix });
            self.out.push_str(line);
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

impl Prefix {
    /// Returns what stands before the next line.
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

    /// Returns what stands in an empty line between two blocks.
    fn gap(&self) -> &'static str {
        match self {
            Prefix::Quote { begun: true } => "> ",
            Prefix::Quote { begun: false } => "",
            Prefix::Item { .. } => "  ",
        }
    }
}
