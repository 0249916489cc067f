//! Slurm's host list expressions: `node[01-03,7],login`. Pure.

/// The maximum number of names of an expression.
pub(crate) const MAX_NAMES: usize = 65_536;
/// The maximum length of a name in bytes. No host has a longer one.
pub(crate) const MAX_NAME: usize = 255;

/// An invalid expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no list of hosts: {why}; the form is node[01-03,7],login")]
pub struct BadHostlist {
    /// The expression, truncated to 80 characters.
    pub text: String,
    /// The mistake.
    pub why: &'static str,
}

/// All names of an expression, in its order.
///
/// Numbers are padded to the width of their range's start: `[08-10]` is 08, 09, 10. A name may have several brackets. The last
/// one varies fastest.
///
/// # Errors
/// Brackets do not match, a range is empty or has no numbers, a name is longer than 255 bytes, or there are more than
/// 65,536 names.
pub fn expand(text: &str) -> Result<Vec<String>, BadHostlist> {
    let bad = |why| BadHostlist {
        text: match text.char_indices().nth(80) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text.to_owned(),
        },
        why,
    };
    let mut names = Vec::new();
    for part in split(text).map_err(bad)? {
        let expanded = expand_one(part).map_err(bad)?;
        if names.len() + expanded.len() > MAX_NAMES {
            return Err(bad(TOO_MANY));
        }
        names.extend(expanded);
    }
    Ok(names)
}

const TOO_MANY: &str = "it stands for more than 65,536 names";
const TOO_LONG: &str = "a name is longer than 255 bytes";

/// The parts between the commas that are outside of brackets.
fn split(text: &str) -> Result<Vec<&str>, &'static str> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (pos, letter) in text.char_indices() {
        match letter {
            '[' if inside => return Err("a bracket in a bracket"),
            '[' => inside = true,
            ']' if !inside => return Err("a bracket is closed that was not opened"),
            ']' => inside = false,
            ',' if !inside => {
                parts.push(&text[start..pos]);
                start = pos + 1;
            }
            letter if letter.is_whitespace() => return Err("a space"),
            _ => {}
        }
    }
    parts.push(&text[start..]);
    if inside {
        return Err("a bracket is not closed");
    }
    if parts.contains(&"") {
        return Err("a name is empty");
    }
    Ok(parts)
}

fn expand_one(part: &str) -> Result<Vec<String>, &'static str> {
    let mut names = vec![String::new()];
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']').ok_or("a bracket is not closed")?;
        let numbers = numbers(ranges)?;
        // Checked before the names are built, since each of them repeats the text around its number.
        let longest = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
        if longest(&names) + before.len() + longest(&numbers) > MAX_NAME {
            return Err(TOO_LONG);
        }
        if names.len().saturating_mul(numbers.len()) > MAX_NAMES {
            return Err(TOO_MANY);
        }
        names = names
            .iter()
            .flat_map(|name| {
                numbers
                    .iter()
                    .map(move |number| format!("{name}{before}{number}"))
            })
            .collect();
        rest = after;
    }
    for name in &mut names {
        name.push_str(rest);
        if name.len() > MAX_NAME {
            return Err(TOO_LONG);
        }
    }
    Ok(names)
}

/// Expands the content of a bracket: `01-03,7`.
fn numbers(ranges: &str) -> Result<Vec<String>, &'static str> {
    const NO_NUMBER: &str = "a range is not of numbers";
    let number = |text: &str| -> Result<usize, &'static str> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NO_NUMBER);
        }
        text.parse().map_err(|_| NO_NUMBER)
    };
    let mut all = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let width = first.len();
        let (from, to) = (number(first)?, number(last)?);
        if width > MAX_NAME {
            return Err(TOO_LONG);
        }
        if to < from {
            return Err("a range runs backwards");
        }
        if to - from >= MAX_NAMES || all.len() + (to - from) >= MAX_NAMES {
            return Err(TOO_MANY);
        }
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(text: &str) -> Vec<String> {
        expand(text).unwrap()
    }

    #[test]
    fn ranges_lists_and_plain_names_are_expanded_in_order() {
        assert_eq!(
            names("node[01-03,7]"),
            ["node01", "node02", "node03", "node7"]
        );
        assert_eq!(
            names("login,gpu[8-11],cn[098-100]"),
            [
                "login", "gpu8", "gpu9", "gpu10", "gpu11", "cn098", "cn099", "cn100"
            ]
        );
        assert_eq!(
            names("r[1-2]n[1-2]-ib"),
            ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]
        );
        assert_eq!(names("a"), ["a"]);
        assert!(names(" ").is_empty());
    }

    #[test]
    fn mistakes_are_refused_with_a_reason() {
        for (text, why) in [
            ("a[1-2", "a bracket is not closed"),
            ("a]", "a bracket is closed that was not opened"),
            ("a[[1]]", "a bracket in a bracket"),
            ("a[3-1]", "a range runs backwards"),
            ("a[x-z]", "a range is not of numbers"),
            ("a[]", "a range is not of numbers"),
            ("a,,b", "a name is empty"),
            ("a b", "a space"),
            ("a[0-99999]", TOO_MANY),
            ("a[0-999]b[0-999]", TOO_MANY),
        ] {
            assert_eq!(expand(text).unwrap_err().why, why, "{text}");
        }
        let long = "x".repeat(300);
        let zeros = "0".repeat(300);
        for text in [
            &long,
            &format!("{long}[0-65535]"),
            &format!("a[{zeros}-65535]"),
            &format!("a[1]{long}"),
        ] {
            let error = expand(text).unwrap_err();
            assert_eq!(error.why, TOO_LONG);
            assert!(error.to_string().len() < 250, "{error}");
        }
        assert_eq!(
            expand("a[").unwrap_err().to_string(),
            r#""a[" is no list of hosts: a bracket is not closed; the form is node[01-03,7],login"#
        );
    }

    proptest! {
        #[test]
        fn names_without_brackets_stand_for_themselves(
            expected in prop::collection::vec("[a-z][a-z0-9.-]{0,8}", 1..8),
        ) {
            prop_assert_eq!(names(&expected.join(",")), expected);
        }

        #[test]
        fn a_range_is_as_long_as_it_says(from in 0usize..2000, count in 1usize..300, width in 1usize..6) {
            let to = from + count - 1;
            let names = names(&format!("n[{from:0width$}-{to}]"));
            let expected: Vec<_> = (from..=to).map(|number| format!("n{number:0width$}")).collect();
            prop_assert_eq!(names, expected);
        }

        #[test]
        fn any_text_is_expanded_or_refused(text in "[a1,\\[\\]-]{0,24}") {
            if let Ok(names) = expand(&text) {
                prop_assert!(names.iter().all(|name| !name.contains(['[', ']', ','])));
            }
        }
    }
}
