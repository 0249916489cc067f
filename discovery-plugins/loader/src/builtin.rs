//! The plugins that are linked in, so that one binary is enough for fixed hosts, a file and a script.

use elasticrun_plugin_sdk::abi::RawPlugin;

/// The name and the table of each plugin.
pub(crate) static LINKED: [(&str, &RawPlugin); 3] = [
    ("file", &elasticrun_plugin_file::ELASTICRUN_PLUGIN),
    ("script", &elasticrun_plugin_script::ELASTICRUN_PLUGIN),
    ("static", &elasticrun_plugin_static::ELASTICRUN_PLUGIN),
];
