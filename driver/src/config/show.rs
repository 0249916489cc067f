//! `elasticrun config show`: each setting with its value and origin, in the syntax of `--config`.

use std::fmt::Write;

use super::{
    error::OneLine,
    table::{Config, Row},
};

impl Config {
    /// All settings, one per line: `key = value  # origin`. A setting without a value is a comment. The text is a
    /// configuration file with the same values.
    #[must_use]
    pub fn show(&self) -> String {
        let rows = self.rows();
        let width = rows
            .iter()
            .map(|row| assignment(row).chars().count())
            .filter(|width| *width <= 60)
            .max();
        let mut text = String::new();
        for row in rows {
            let assignment = assignment(&row);
            writeln!(
                text,
                "{assignment:width$}  # {}",
                OneLine(&row.origin.to_string()),
                width = width.unwrap_or(0)
            )
            .expect("writing to a string does not fail");
        }
        text
    }

    /// The settings that differ from their defaults, in the format of [`show`](Self::show).
    #[must_use]
    pub fn differences(&self) -> Vec<String> {
        let rows = self.rows();
        let differing = rows.iter().filter(|row| row.differs);
        differing
            .map(|row| {
                let origin = row.origin.to_string();
                format!("{}  # {}", assignment(row), OneLine(&origin))
            })
            .collect()
    }
}

fn assignment(row: &Row) -> String {
    match &row.value {
        Some(value) => format!("{} = {value}", row.key),
        None => format!("# {} is not set", row.key),
    }
}
