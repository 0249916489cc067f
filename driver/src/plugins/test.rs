//! `elasticrun plugin test NAME[:OPTIONS]`

use std::io::Write;

use elasticrun_plugin_loader::{Catalog, Spec, conformance};
use serde_json::json;

use super::line;
use crate::exit;

/// Runs the conformance suite. The exit code is 1 if a check fails.
pub(super) fn test(
    catalog: &mut Catalog,
    spec: &Spec,
    as_json: bool,
    out: &mut impl Write,
) -> anyhow::Result<u8> {
    let (plugin, options) = catalog.source(spec)?;
    let mut shown = Ok(());
    let checks = conformance::check(&plugin, &options, |check| {
        if !as_json && shown.is_ok() {
            let verdict = if check.passed { "ok  " } else { "FAIL" };
            shown = line(
                out,
                format_args!("{verdict}  {:14}  {}", check.name, check.detail),
            );
        }
    });
    shown?;
    let failed = checks.iter().filter(|check| !check.passed).count();
    if as_json {
        let name = &plugin.manifest().name;
        line(
            out,
            json!({"plugin": name, "passed": failed == 0, "checks": checks}),
        )?;
    } else {
        let all = checks.len();
        line(out, format_args!("{} of {all} passed", all - failed))?;
    }
    Ok(if failed == 0 {
        exit::SUCCESS
    } else {
        exit::WORKER_FAILED
    })
}
