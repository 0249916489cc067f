//! `elasticrun plugin inspect NAME`

use std::{fs, io::Write};

use anyhow::Context as _;
use elasticrun_plugin_loader::{Allowed, Catalog, Hash, Isolation, Origin};
use serde_json::Value;

use super::{line, list};
use crate::exit;

/// Prints the manifest of a plugin.
pub(super) fn inspect(
    catalog: &mut Catalog,
    name: &str,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let plugin = catalog.find(name)?;
    let manifest = plugin.manifest();
    let hash = match plugin.origin() {
        Origin::Linked => None,
        Origin::File(path) => {
            let content = fs::read(&path).with_context(|| path.display().to_string())?;
            Some(Hash::digest(&content))
        }
    };
    if as_json {
        let mut row = list::row(&plugin);
        row["hash"] = hash.map_or(Value::Null, |hash| hash.to_string().into());
        line(out, row)?;
        return Ok(exit::SUCCESS);
    }
    line(
        out,
        format_args!("{name} {}, {}", manifest.version, manifest.license),
    )?;
    line(out, &manifest.description)?;
    line(
        out,
        format_args!("from         {}", list::location(&plugin)),
    )?;
    let runs = match plugin.isolation() {
        Isolation::Process => "in a process of its own",
        Isolation::Thread => "in the driver's process",
    };
    line(out, format_args!("runs         {runs}"))?;
    let updates = if plugin.watches() {
        "pushed, and polled"
    } else {
        "polled"
    };
    line(out, format_args!("changes are  {updates}"))?;
    let named = |names: &[String]| match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    line(
        out,
        format_args!("variables    {}", named(&manifest.environment)),
    )?;
    line(
        out,
        format_args!("permissions  {}", named(&manifest.permissions)),
    )?;
    if let Some(hash) = hash {
        let name = name.to_owned();
        let allowed = Allowed { name, hash };
        line(out, format_args!("allow it by  --plugin-allow {allowed}"))?;
    }
    let required = manifest.config.get("required").and_then(Value::as_array);
    let properties = manifest.config.get("properties");
    for (option, schema) in properties.and_then(Value::as_object).into_iter().flatten() {
        let is_required = required
            .into_iter()
            .flatten()
            .any(|name| name.as_str() == Some(option));
        let text = |key: &str| schema.get(key).and_then(Value::as_str).unwrap_or_default();
        let needed = if is_required { "needed" } else { "" };
        line(
            out,
            format_args!(
                "option       {option:16} {:8} {needed:6} {}",
                text("type"),
                text("description")
            ),
        )?;
    }
    Ok(exit::SUCCESS)
}
