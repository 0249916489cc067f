//! Splits a command line into options and COMMAND before clap parses it.
//!
//! clap supports no long option with a single dash, but scripts for horovodrun use `-np 4`. This module rewrites such
//! options in front of COMMAND. It leaves the options of COMMAND alone.

use std::{collections::BTreeMap, ffi::OsString};

use clap::{Arg, Command};

use crate::config::Error;

/// Options with their values, in clap's spelling, and COMMAND.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Words {
    pub(super) options: Vec<String>,
    pub(super) command: Vec<String>,
    /// How the user spelled an option, by its id in clap. The last spelling counts.
    pub(super) spelled: BTreeMap<String, String>,
}

/// horovodrun's long options with one dash, and their names here.
pub(super) const SINGLE_DASH: [(&str, &str); 4] = [
    ("-np", "--num-proc"),
    ("-hostfile", "--hostfile"),
    ("-prefix-timestamp", "--prefix-output-with-timestamp"),
    ("-cb", "--check-build"),
];

/// Splits words at the start of COMMAND.
///
/// # Errors
/// A word is not UTF-8, or a word with one dash is no option.
pub(super) fn split(
    words: impl IntoIterator<Item = OsString>,
    clap: &Command,
) -> Result<Words, Error> {
    split_with(words, clap, str::to_owned)
}

/// As [`split`]. `canonical` gives clap's spelling of a word with two dashes.
///
/// # Errors
/// As [`split`].
pub(super) fn split_with(
    words: impl IntoIterator<Item = OsString>,
    clap: &Command,
    canonical: impl Fn(&str) -> String,
) -> Result<Words, Error> {
    let mut words = words
        .into_iter()
        .enumerate()
        .map(|(index, word)| text(index + 1, word));
    let mut options = Vec::new();
    let mut command = Vec::new();
    let mut spelled = BTreeMap::new();
    while let Some(word) = words.next() {
        let word = word?;
        if word == "--" {
            break;
        }
        if !word.starts_with('-') || word == "-" {
            command.push(word);
            break;
        }
        let option = if word.starts_with("--") {
            canonical(&word)
        } else {
            one_dash(&word, clap)?
        };
        let found = Found::new(&option, clap);
        if let Some(arg) = found.arg {
            spelled.insert(arg.get_id().to_string(), name(&word, &option));
        }
        options.push(option);
        for value in words.by_ref().take(found.value_words) {
            options.push(value?);
        }
    }
    for word in words {
        command.push(word?);
    }
    Ok(Words {
        options,
        command,
        spelled,
    })
}

fn text(number: usize, word: OsString) -> Result<String, Error> {
    word.into_string().map_err(|word| Error::Usage {
        message: format!(
            "{}: argument {number} is not UTF-8; expected text",
            word.to_string_lossy()
        ),
    })
}

/// An option with one dash, in clap's spelling.
fn one_dash(word: &str, clap: &Command) -> Result<String, Error> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    if let Some((_, long)) = SINGLE_DASH.iter().find(|(single, _)| *single == name) {
        return Ok(match value {
            Some(value) => format!("{long}={value}"),
            None => (*long).to_owned(),
        });
    }
    let mut letters = word[1..].chars();
    let known = letters
        .next()
        .and_then(|letter| short(letter, clap))
        .map(values);
    match (known, letters.as_str()) {
        (Some(_), "") => Ok(word.to_owned()),
        (Some(takes), _) if takes > 0 => Ok(word.to_owned()),
        _ => Err(Error::Usage {
            message: no_such_option(word, clap),
        }),
    }
}

fn no_such_option(word: &str, clap: &Command) -> String {
    let name = word.trim_start_matches('-');
    let digits = word
        .strip_prefix("-np")
        .filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()));
    let remedy = match digits {
        Some(number) => format!("expected -np {number}"),
        None if long(name.split('=').next().unwrap_or(name), clap).is_some() => {
            format!("expected --{name}")
        }
        None => "see elasticrun --help".to_owned(),
    };
    format!("{word}: no such option; {remedy}")
}

/// The name of an option as the user wrote it, without its value.
fn name(written: &str, option: &str) -> String {
    let end = if option.starts_with("--") {
        written.find('=').unwrap_or(written.len())
    } else {
        // One letter, possibly followed by its value.
        1 + written[1..].chars().next().map_or(0, char::len_utf8)
    };
    written[..end].to_owned()
}

/// An option as clap defines it.
struct Found<'a> {
    /// `None` if there is no such option.
    arg: Option<&'a Arg>,
    /// How many of the following words are its values. 0 if its value is attached.
    value_words: usize,
}

impl<'a> Found<'a> {
    fn new(option: &str, clap: &'a Command) -> Self {
        let (arg, attached) = match option.strip_prefix("--") {
            Some(text) => (
                long(text.split('=').next().unwrap_or(text), clap),
                text.contains('='),
            ),
            None => {
                let mut letters = option[1..].chars();
                let arg = letters.next().and_then(|letter| short(letter, clap));
                (arg, !letters.as_str().is_empty())
            }
        };
        Self {
            arg,
            value_words: if attached { 0 } else { arg.map_or(0, values) },
        }
    }
}

fn long<'a>(name: &str, clap: &'a Command) -> Option<&'a Arg> {
    clap.get_arguments().find(|arg| {
        arg.get_long() == Some(name)
            || arg
                .get_all_aliases()
                .is_some_and(|aliases| aliases.contains(&name))
    })
}

fn short(letter: char, clap: &Command) -> Option<&Arg> {
    clap.get_arguments().find(|arg| {
        arg.get_short() == Some(letter)
            || arg
                .get_all_short_aliases()
                .is_some_and(|aliases| aliases.contains(&letter))
    })
}

/// How many words an option takes.
pub(super) fn values(arg: &Arg) -> usize {
    if arg.get_action().takes_values() {
        arg.get_num_args().map_or(1, |range| range.max_values())
    } else {
        0
    }
}
