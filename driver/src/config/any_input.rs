//! Properties of a configuration file for any input: for the fuzzer, and for a test of some thousand files in the test suite.

use std::path::Path;

use super::{
    error::Error,
    file,
    layer::Layers,
    settings::Settings,
    table::{Config, KEYS},
};

/// The maximum length of an error in bytes.
const MAX_ERROR: usize = 6000;

/// Reads a text as a configuration file. Returns whether each value in it is valid by itself.
///
/// # Panics
/// If what `config show` prints is no file with the same values, or if an error is not one line of limited length.
pub fn check_file(text: &str) -> bool {
    let config = match read(text) {
        Ok(config) => config,
        Err(error) => {
            check_error(&error);
            return false;
        }
    };
    let shown = config.show();
    let again = match read(&shown) {
        Ok(again) => again,
        Err(error) => panic!("{error}, in what config show printed:\n{shown}"),
    };
    let values = |config: &Config| {
        let rows = config.rows().into_iter();
        rows.map(|row| (row.key, row.value)).collect::<Vec<_>>()
    };
    assert_eq!(values(&again), values(&config), "{shown}");
    if names_no_file(&config)
        && let Err(error) = Settings::resolve(&config, vec!["command".to_owned()])
    {
        check_error(&error);
    }
    true
}

/// Checks that an error is one line of limited length.
///
/// # Panics
/// If it is not.
pub fn check_error(error: &Error) {
    let line = error.to_string();
    assert!(
        !line.is_empty() && line.len() <= MAX_ERROR && !line.contains(char::is_control),
        "{line:?}"
    );
}

fn read(text: &str) -> Result<Config, Error> {
    // A name that would break a line.
    let path = Path::new("the\njob.toml");
    let keys: Vec<_> = KEYS.iter().map(|key| key.name).collect();
    let mut layers = Layers::default();
    file::add(&mut layers, path, text, &keys)?;
    Config::read(&layers)
}

/// Whether resolving reads no file, which could be any.
fn names_no_file(config: &Config) -> bool {
    let single = [
        &config.hostfile,
        &config.host_discovery_script,
        &config.ssh_identity_file,
        &config.output_filename,
        &config.join_token_file,
    ];
    single.iter().all(|path| path.value.is_none()) && config.plugin_dir.value.is_empty()
}
