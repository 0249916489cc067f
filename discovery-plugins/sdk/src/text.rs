//! Texts of sources as one line for messages.

use std::error::Error;

/// The length limit of [`one_line`], in characters.
const MAX_CHARS: usize = 300;

/// Whether a character has no shape of its own, or changes the order or the lines of the text around it: control characters,
/// marks of direction, spaces and joiners of no width, separators of lines and paragraphs, tags.
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// One line without [invisible characters](is_invisible), truncated to 300 characters and three dots.
pub fn one_line(text: &str) -> String {
    one_line_within(text, MAX_CHARS)
}

/// As [`one_line`], truncated to `max_chars` characters and three dots.
pub fn one_line_within(text: &str, max_chars: usize) -> String {
    let line = text.replace(is_invisible, " ");
    let line = line.trim();
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// An error with its causes, without repetition, as [`one_line`].
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        next = error.source();
    }
    one_line(&message)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot ask the rack")]
    struct Outer(#[source] Inner);

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read: {0}")]
    struct Inner(#[source] io::Error);

    #[test]
    fn lines_are_short_and_causes_are_not_repeated() {
        assert_eq!(one_line(" a\nb\t"), "a b");
        assert_eq!(one_line(&"é".repeat(400)).chars().count(), 303);
        assert_eq!(
            one_line("a\u{202e}b\u{200b}c\u{2066}d\u{2028}e"),
            "a b c d e"
        );
        assert_eq!(one_line("größe 計算 🚀"), "größe 計算 🚀");
        let error = Outer(Inner(io::Error::other("it\nburns")));
        assert_eq!(
            with_causes(&error),
            "cannot ask the rack: cannot read: it burns"
        );
    }
}
