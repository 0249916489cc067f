//! What clap says, as one of our lines.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Invocation, horovod};
use crate::config::Error;

/// Help and version are what was asked for; all else is a mistake.
pub(super) fn answer(error: &clap::Error) -> Result<Invocation, Error> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Ok(Invocation::Print(format!(
            "{}\n",
            error.render().to_string().trim_end()
        ))),
        _ => Err(Error::Usage {
            message: message(error),
        }),
    }
}

fn message(error: &clap::Error) -> String {
    let argument = strings(error, ContextKind::InvalidArg);
    let argument = argument.first().map_or("option", |text| option_name(text));
    match error.kind() {
        ErrorKind::UnknownArgument if !argument.starts_with('-') => {
            format!("{argument}: expected an option; see elasticrun --help")
        }
        ErrorKind::UnknownArgument => {
            let meant = strings(error, ContextKind::SuggestedArg);
            let remedy = meant
                .iter()
                .find(|meant| !horovod::is_inert(meant))
                .map_or_else(
                    || "see elasticrun --help".to_owned(),
                    |meant| format!("did you mean {}?", option_name(meant)),
                );
            format!("{argument}: no such option; {remedy}")
        }
        ErrorKind::TooManyValues => {
            let value = strings(error, ContextKind::InvalidValue);
            format!(
                "{argument} {}: expected no value",
                value.first().map_or("", |value| value)
            )
        }
        ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!(
                "{argument}: a value is missing; expected {}",
                expected(error)
            )
        }
        _ => first_paragraph(&error.render().to_string()),
    }
}

/// `--min-np <N>` without its value names, and `-np` by the name that everybody knows.
fn option_name(text: &str) -> &str {
    match text.split([' ', '=']).next() {
        Some("--num-proc") => "-np",
        Some(name) => name,
        None => text,
    }
}

/// The option with its value names, as clap spells it, without brackets.
fn expected(error: &clap::Error) -> String {
    strings(error, ContextKind::InvalidArg).first().map_or_else(
        || "a value".to_owned(),
        |text| text.replace(['<', '>'], "").replace("--num-proc", "-np"),
    )
}

fn strings(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

fn first_paragraph(text: &str) -> String {
    let lines: Vec<_> = text
        .lines()
        .take_while(|line| !line.trim().is_empty())
        .map(str::trim)
        .collect();
    lines.join(" ").trim_start_matches("error: ").to_owned()
}
