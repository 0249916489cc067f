//! The name that a misspelled one was probably meant to be.

use clap::Arg;

use super::table::KEYS;

/// The setting that a misspelled key was probably meant to be. An alias of a flag is no key, and names its setting.
pub(super) fn nearest_setting(word: &str) -> Option<&'static str> {
    let mut spelled: Vec<(String, &'static str)> = Vec::new();
    for key in KEYS {
        let arg = (key.spelling)(Arg::new(key.name).long(key.name));
        let others = arg.get_all_aliases().unwrap_or_default();
        let names = [key.name].into_iter().chain(arg.get_long()).chain(others);
        spelled.extend(names.map(|name| (name.to_owned(), key.name)));
    }
    let names: Vec<_> = spelled.iter().map(|(name, _)| name.as_str()).collect();
    let found = nearest(word, &names)?;
    let of_setting = spelled.iter().find(|(name, _)| name == found);
    of_setting.map(|(_, setting)| *setting)
}

/// The candidate with the smallest edit distance to `word`, if that is at most a third of its length.
///
/// `_` counts as `-`. Of candidates with the same distance, the first wins.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: String = word.chars().take(64).collect();
    let word = word.replace('_', "-");
    candidates
        .iter()
        .map(|candidate| (strsim::levenshtein(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_has_a_suggestion_and_another_word_has_none() {
        let keys = ["np", "min-np", "max-np", "elastic-timeout", "spares"];
        assert_eq!(nearest("min_np", &keys), Some("min-np"));
        assert_eq!(nearest("elastic-timeout", &keys), Some("elastic-timeout"));
        assert_eq!(nearest("spare", &keys), Some("spares"));
        assert_eq!(nearest("maxnp", &keys), Some("max-np"));
        assert_eq!(nearest("colour", &keys), None);
        assert_eq!(nearest("", &keys), None);
    }

    #[test]
    fn an_alias_names_its_setting() {
        for (word, setting) in [
            ("num-proc", Some("np")),
            ("NUM_PROC", Some("np")),
            ("slots", Some("slots-per-host")),
            ("max-num-proc", Some("max-np")),
            ("minnp", Some("min-np")),
            ("job-name", None),
        ] {
            assert_eq!(
                nearest_setting(&word.to_ascii_lowercase()),
                setting,
                "{word}"
            );
        }
    }
}
