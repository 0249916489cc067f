//! `elasticrun plugin list`

use std::io::Write;

use elasticrun_plugin_loader::{Catalog, Isolation, Origin, Plugin};
use serde_json::{Value, json};

use super::line;
use crate::exit;

/// Prints all plugins that can be found. Loads each to check whether it is usable.
pub(super) fn list(
    catalog: &mut Catalog,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let found: Vec<_> = catalog
        .names()
        .into_iter()
        .map(|name| {
            let plugin = catalog.find(&name);
            (name, plugin)
        })
        .collect();
    if as_json {
        let rows: Vec<_> = found
            .iter()
            .map(|(name, plugin)| match plugin {
                Ok(plugin) => row(plugin),
                Err(error) => json!({"name": name, "error": error.to_string()}),
            })
            .collect();
        line(out, Value::from(rows))?;
        return Ok(exit::SUCCESS);
    }
    for (name, plugin) in &found {
        let text = match plugin {
            Ok(plugin) => {
                let manifest = plugin.manifest();
                format!("{name:16} {:10} {}", manifest.version, manifest.description)
            }
            Err(error) => format!("{name:16} cannot be used: {error}"),
        };
        line(out, text)?;
        if let Ok(plugin) = plugin {
            line(out, format_args!("{:27} {}", "", location(plugin)))?;
        }
    }
    Ok(exit::SUCCESS)
}

/// A plugin as JSON.
pub(super) fn row(plugin: &Plugin) -> Value {
    let mut row = json!(plugin.manifest());
    let (path, isolation) = match plugin.origin() {
        Origin::Linked => (Value::Null, "linked in"),
        Origin::File(path) => (
            path.display().to_string().into(),
            match plugin.isolation() {
                Isolation::Process => "process",
                Isolation::Thread => "thread",
            },
        ),
    };
    row["path"] = path;
    row["isolation"] = isolation.into();
    row["watches"] = plugin.watches().into();
    row
}

/// The origin of a plugin, for the user.
pub(super) fn location(plugin: &Plugin) -> String {
    match plugin.origin() {
        Origin::Linked => "part of elasticrun".to_owned(),
        Origin::File(path) => path.display().to_string(),
    }
}
