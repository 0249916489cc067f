//! The name that was probably meant.

/// The candidate that differs from `word` in the fewest letters, if that is few for its length.
/// `_` counts as `-`; of equals the first wins.
pub(super) fn nearest<'a>(word: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word
        .chars()
        .map(|c| if c == '_' { '-' } else { c })
        .take(64)
        .collect();
    candidates
        .iter()
        .map(|candidate| (distance(&word, candidate), *candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits (insert, delete, replace) from one to the other.
fn distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (place, letter) in to.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = place + 1;
        for column in 0..from.len() {
            let replaced = diagonal + usize::from(from[column] != letter);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_mended_and_nonsense_is_not() {
        let keys = ["np", "min-np", "max-np", "elastic-timeout", "spares"];
        assert_eq!(nearest("min_np", &keys), Some("min-np"));
        assert_eq!(nearest("elastic-timeout", &keys), Some("elastic-timeout"));
        assert_eq!(nearest("spare", &keys), Some("spares"));
        assert_eq!(nearest("maxnp", &keys), Some("max-np"));
        assert_eq!(nearest("colour", &keys), None);
        assert_eq!(nearest("", &keys), None);
    }
}
