//! Properties of the values of a journal for any bytes, for unit tests and the fuzzer.

use super::{Configuration, Entries, Epoch, Final, configuration, epoch, outcome, seal::Key};

/// Reads bytes as a sealed value, and as the value of each entry.
///
/// # Panics
/// When bytes that were not sealed are unsealed, a value does not survive sealing, or an accepted value is written in a form
/// that reads differently.
pub fn check(bytes: &[u8]) {
    let key = Key::from_bytes(&[7; 32]);
    assert_eq!(key.unseal("run", "entry", bytes), None);
    let sealed = key.seal("run", "entry", bytes).expect("it is short");
    assert_eq!(key.unseal("run", "entry", &sealed).as_deref(), Some(bytes));

    let entries = |key: &str, value: &[u8]| Entries::from([(key.to_owned(), value.to_vec())]);
    if let Some(read) = Epoch::read(&entries(epoch::KEY, bytes)) {
        let again = read.entry().value.expect("it has a value");
        assert_eq!(Epoch::read(&entries(epoch::KEY, &again)), Some(read));
    }
    if let Some(read) = Final::read(&entries(outcome::KEY, bytes)) {
        let again = read.entry().value.expect("it has a value");
        assert_eq!(Final::read(&entries(outcome::KEY, &again)), Some(read));
    }
    if let Some(read) = Configuration::read(&entries(configuration::KEY, bytes)) {
        let again = read.entry().value.expect("it has a value");
        let again = Configuration::read(&entries(configuration::KEY, &again));
        assert_eq!(again.as_ref(), Some(&read));
        let _ = read.trust(None);
        match read.settings.read() {
            // The words of the accepted settings are words of the same settings.
            Ok(config) => {
                let words = config.words();
                let again = words.read().expect("they are accepted");
                assert_eq!(again.words(), words);
            }
            Err(error) => {
                let line = error.to_string();
                assert!(
                    line.len() < 4096 && !line.contains(char::is_control),
                    "{line:?}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
