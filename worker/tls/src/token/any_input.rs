//! Properties that hold for any text of a join token: for the fuzzer, and for a test of some thousand texts in the test suite.

#[cfg(test)]
mod tests;

use super::Token;

/// Reads any bytes as a token. Gives whether they are one.
///
/// # Panics
/// If a token has another text than the one that was read, or an error is not one short line without the text.
pub fn check(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Token>() {
        Ok(token) => {
            assert_eq!(*token.expose(), text.trim());
            let again: Token = token.expose().parse().expect("its own text is a token");
            assert_eq!(again, token);
            true
        }
        Err(error) => {
            let line = error.to_string();
            assert!(line.len() < 100 && !line.contains('\n'), "{line}");
            false
        }
    }
}
