//! The name that a misspelled one was probably meant to be.

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
}
