//! Figures of the rows, as a table and as JSON.

use serde_json::{Value, json};
use std::fmt;

const MARK: &str = "figure:\t";
const HEADINGS: [&str; 5] = ["Row", "What", "Figure", "Target", "Verdict"];

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FigureRow {
    pub(crate) what: String,
    pub(crate) measured: String,
    pub(crate) target: String,
    pub(crate) ok: Option<bool>,
}

impl FigureRow {
    pub(crate) fn skipped(reason: &str) -> FigureRow {
        FigureRow { what: "skipped".to_owned(), measured: reason.to_owned(), target: String::new(), ok: None }
    }

    pub(crate) fn failed(reason: &str) -> FigureRow {
        FigureRow {
            what: "ended".to_owned(),
            measured: reason.to_owned(),
            target: "well".to_owned(),
            ok: Some(false),
        }
    }
}

/// Returns the figures that a program printed. Other output may precede one on its line.
pub(crate) fn marked(log: &str) -> Vec<FigureRow> {
    let figure = |line: &str| {
        let (_, fields) = line.split_once(MARK)?;
        let mut fields = fields.split('\t').map(str::to_owned);
        let (what, measured, target) = (fields.next()?, fields.next()?, fields.next()?);
        let ok = match fields.next()?.as_str() {
            "" => None,
            verdict => Some(verdict == "ok"),
        };
        Some(FigureRow { what, measured, target, ok })
    };
    log.lines().filter_map(figure).collect()
}

/// All rows.
pub(crate) struct TortureReport {
    seed: u64,
    rows: Vec<(&'static str, FigureRow)>,
}

impl TortureReport {
    pub(crate) fn new(seed: u64) -> TortureReport {
        TortureReport { seed, rows: Vec::new() }
    }

    pub(crate) fn add(&mut self, row: &'static str, figures: Vec<FigureRow>) {
        self.rows.extend(figures.into_iter().map(|figure| (row, figure)));
    }

    pub(crate) fn is_good(&self) -> bool {
        self.rows.iter().all(|(_, figure)| figure.ok != Some(false))
    }

    pub(crate) fn json(&self) -> Value {
        let row = |(row, figure): &(&str, FigureRow)| {
            json!({
                "row": row, "what": figure.what, "figure": figure.measured, "target": figure.target, "ok": figure.ok
            })
        };
        let figures: Vec<Value> = self.rows.iter().map(row).collect();
        json!({ "seed": self.seed, "ok": self.is_good(), "figures": figures })
    }
}

impl fmt::Display for TortureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = |ok| match ok {
            Some(true) => "ok",
            Some(false) => "FAILED",
            None => "",
        };
        let cells: Vec<[&str; 5]> = self
            .rows
            .iter()
            .map(|(row, figure)| [*row, &figure.what, &figure.measured, &figure.target, verdict(figure.ok)])
            .collect();
        let width = |column: usize| {
            let lengths = cells.iter().chain([&HEADINGS]).map(|row| row[column].chars().count());
            lengths.max().unwrap_or_default()
        };
        let widths: [usize; 5] = std::array::from_fn(width);
        let dashes = widths.map(|width| "-".repeat(width));
        let rule: [&str; 5] = std::array::from_fn(|column| dashes[column].as_str());
        for row in [&HEADINGS, &rule].into_iter().chain(&cells) {
            for (cell, width) in row.iter().zip(widths) {
                write!(f, "| {cell:<width$} ")?;
            }
            f.write_str("|\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_and_shown() {
        let log =
            "running\ntest x ... figure:\twrites lost\t0\t0\tok\n    figure:\truns\t3\t\t\nfigure:\tbroken\n";
        let figures = marked(log);
        assert_eq!(figures.len(), 2);
        let mut report = TortureReport::new(7);
        report.add("kill", figures);
        assert!(report.is_good());
        report.add("x", vec![FigureRow::failed("exit status: 1")]);
        let expected = "\
| Row  | What        | Figure         | Target | Verdict |
| ---- | ----------- | -------------- | ------ | ------- |
| kill | writes lost | 0              | 0      | ok      |
| kill | runs        | 3              |        |         |
| x    | ended       | exit status: 1 | well   | FAILED  |
";
        assert_eq!(report.to_string(), expected);
        assert!(!report.is_good());
        let json = report.json();
        assert_eq!(
            (&json["seed"], &json["ok"], &json["figures"][0]["ok"]),
            (&json!(7), &json!(false), &json!(true))
        );
    }
}
