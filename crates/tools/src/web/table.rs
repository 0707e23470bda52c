//! Tables: tells data tables from layout tables, and renders data tables as Markdown.

use super::page_tree::PageTree;
use super::tag::Tag;

/// A wider table is useless as text.
const COLUMNS_MAX: usize = 40;

/// Returns for each node whether it is a data table. The cells of layout tables are blocks.
pub(super) fn data_tables(page: &PageTree, shown: &[bool]) -> Vec<bool> {
    let count = page.len();
    let mut nearest = vec![0; count];
    let (mut rows, mut columns, mut cells) =
        (vec![0_usize; count], vec![0_usize; count], vec![0_usize; count]);
    let mut arranges = vec![false; count];
    for id in 1..count {
        let parent = page.parent(id);
        let table = if page.tag(parent) == Some(Tag::Table) { parent } else { nearest[parent] };
        nearest[id] = table;
        if table == 0 || !shown[id] {
            continue;
        }
        match page.tag(id) {
            Some(Tag::Tr) => rows[table] += 1,
            Some(Tag::Td | Tag::Th) => {
                cells[parent] += 1;
                columns[table] = columns[table].max(cells[parent]);
            }
            Some(
                Tag::Table | Tag::Blockquote | Tag::Ul | Tag::Ol | Tag::Pre | Tag::Article | Tag::Section,
            ) => {
                arranges[table] = true;
            }
            Some(tag) if tag.heading().is_some() => arranges[table] = true,
            _ => {}
        }
    }
    let is_data = |id: usize| {
        page.tag(id) == Some(Tag::Table)
            && rows[id] >= 2
            && (2..=COLUMNS_MAX).contains(&columns[id])
            && !arranges[id]
    };
    (0..count).map(is_data).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CellKind {
    Data,
    Heading,
}

/// A table that is being collected.
#[derive(Default)]
pub(super) struct DataTable {
    caption: String,
    rows: Vec<Vec<String>>,
    /// Whether the first row is a header.
    has_head: bool,
}

impl DataTable {
    pub(super) fn row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(super) fn cell(&mut self, kind: CellKind) {
        if self.rows.is_empty() {
            self.row();
        }
        let first_row = self.rows.len() == 1;
        if let Some(row) = self.rows.last_mut() {
            self.has_head = first_row && kind == CellKind::Heading && (row.is_empty() || self.has_head)
                || !first_row && self.has_head;
            row.push(String::new());
        }
    }

    /// Adds text to the current cell.
    pub(super) fn add(&mut self, text: &str) {
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let into = self.rows.last_mut().and_then(|row| row.last_mut()).unwrap_or(&mut self.caption);
        if !into.is_empty() {
            into.push(' ');
        }
        into.push_str(&text.replace('\n', " ").replace('|', "\\|"));
    }

    pub(super) fn markdown(mut self) -> String {
        self.rows.retain(|row| !row.is_empty());
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut lines = Vec::new();
        if !self.caption.is_empty() {
            lines.extend([self.caption.replace("\\|", "|"), String::new()]);
        }
        // Markdown requires a header row.
        if !self.has_head {
            lines.push(line(&[], columns));
            lines.push(rule(columns));
        }
        for (at, row) in self.rows.iter().enumerate() {
            lines.push(line(row, columns));
            if at == 0 && self.has_head {
                lines.push(rule(columns));
            }
        }
        lines.join("\n")
    }
}

fn line(cells: &[String], columns: usize) -> String {
    let cells = (0..columns).map(|at| cells.get(at).map(String::as_str).unwrap_or_default());
    cells.fold(
        "|".to_owned(),
        |line, cell| if cell.is_empty() { line + " |" } else { format!("{line} {cell} |") },
    )
}

fn rule(columns: usize) -> String {
    "|".to_owned() + &"---|".repeat(columns)
}
