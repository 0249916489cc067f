//! Takes the words of a command line apart before clap sees them: our options, and COMMAND.
//!
//! clap knows no long option behind a single dash, but horovodrun's `-np 4` is in everybody's scripts. So such
//! options are rewritten here, and only in front of COMMAND, whose own `-np` is its own business.

use std::ffi::OsString;

use clap::Command;

use crate::config::Error;

/// Options with their values, in clap's spelling, and what is to be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Words {
    pub(super) options: Vec<String>,
    pub(super) command: Vec<String>,
}

/// horovodrun's long options with one dash, and what they are called here.
const SINGLE_DASH: [(&str, &str); 4] = [
    ("-np", "--num-proc"),
    ("-hostfile", "--hostfile"),
    ("-prefix-timestamp", "--prefix-output-with-timestamp"),
    ("-cb", "--check-build"),
];

/// Splits words at the start of COMMAND.
///
/// # Errors
/// Words that are not UTF-8, and words with one dash that are no option.
pub(super) fn split(
    words: impl IntoIterator<Item = OsString>,
    clap: &Command,
) -> Result<Words, Error> {
    let mut words = words
        .into_iter()
        .enumerate()
        .map(|(place, word)| text(place + 1, word));
    let mut options = Vec::new();
    let mut command = Vec::new();
    while let Some(word) = words.next() {
        let word = word?;
        if word == "--" {
            break;
        }
        if !word.starts_with('-') || word == "-" {
            command.push(word);
            break;
        }
        let word = if word.starts_with("--") {
            word
        } else {
            one_dash(word, clap)?
        };
        let takes = values_of(&word, clap);
        options.push(word);
        for value in words.by_ref().take(takes) {
            options.push(value?);
        }
    }
    for word in words {
        command.push(word?);
    }
    Ok(Words { options, command })
}

fn text(place: usize, word: OsString) -> Result<String, Error> {
    word.into_string().map_err(|word| Error::Usage {
        message: format!(
            "{}: argument {place} is not UTF-8; expected text",
            word.to_string_lossy()
        ),
    })
}

/// An option with one dash as clap knows it.
fn one_dash(word: String, clap: &Command) -> Result<String, Error> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word.as_str(), None),
    };
    if let Some((_, long)) = SINGLE_DASH.iter().find(|(single, _)| *single == name) {
        return Ok(match value {
            Some(value) => format!("{long}={value}"),
            None => (*long).to_owned(),
        });
    }
    let mut letters = word[1..].chars();
    let known = letters.next().and_then(|letter| short(letter, clap));
    match (known, letters.as_str()) {
        (Some(_), "") => Ok(word),
        (Some(takes), _) if takes > 0 => Ok(word),
        _ => Err(Error::Usage {
            message: no_such_option(&word, clap),
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

/// How many of the words that follow are values of this option; 0 if it is none or has its value attached.
fn values_of(word: &str, clap: &Command) -> usize {
    match word.strip_prefix("--") {
        Some(name) if name.contains('=') => 0,
        Some(name) => long(name, clap).unwrap_or(0),
        None => {
            let mut letters = word[1..].chars();
            let takes = letters.next().and_then(|letter| short(letter, clap));
            if letters.as_str().is_empty() {
                takes.unwrap_or(0)
            } else {
                0
            }
        }
    }
}

fn long(name: &str, clap: &Command) -> Option<usize> {
    clap.get_arguments()
        .find(|arg| {
            arg.get_long() == Some(name)
                || arg
                    .get_all_aliases()
                    .is_some_and(|aliases| aliases.contains(&name))
        })
        .map(values)
}

fn short(letter: char, clap: &Command) -> Option<usize> {
    clap.get_arguments()
        .find(|arg| {
            arg.get_short() == Some(letter)
                || arg
                    .get_all_short_aliases()
                    .is_some_and(|aliases| aliases.contains(&letter))
        })
        .map(values)
}

fn values(arg: &clap::Arg) -> usize {
    if arg.get_action().takes_values() {
        arg.get_num_args().map_or(1, |range| range.max_values())
    } else {
        0
    }
}
