//! Errors of clap as one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::{Invocation, horovod, torchrun};
use crate::config::{Error, KEYS};

/// Help and version are printed. All other errors of clap are mistakes in the command line.
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
        ErrorKind::UnknownArgument if torchrun::is_option(argument) => {
            format!(
                "{argument}: an option of torchrun: elasticrun torchrun takes it; or see docs/unmodified-scripts.md"
            )
        }
        ErrorKind::UnknownArgument if is_setting(argument) => {
            format!("{argument}: no option of this command, but of the driver: elasticrun run")
        }
        ErrorKind::UnknownArgument => {
            let suggestions = strings(error, ContextKind::SuggestedArg);
            let remedy = suggestions
                .iter()
                .find(|option| !horovod::is_inert(option))
                .map_or_else(
                    || "see elasticrun --help".to_owned(),
                    |option| format!("did you mean {}?", option_name(option)),
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
        ErrorKind::InvalidValue if !strings(error, ContextKind::ValidValue).is_empty() => {
            let value = strings(error, ContextKind::InvalidValue);
            let allowed = strings(error, ContextKind::ValidValue);
            let allowed = match allowed.as_slice() {
                [others @ .., last] if !others.is_empty() => {
                    format!("{} or {last}", others.join(", "))
                }
                _ => allowed.concat(),
            };
            match value.first().filter(|value| !value.is_empty()) {
                Some(value) => format!("{argument} {value}: expected {allowed}"),
                None => format!("{argument}: a value is missing; expected {allowed}"),
            }
        }
        ErrorKind::InvalidValue | ErrorKind::TooFewValues | ErrorKind::WrongNumberOfValues => {
            format!(
                "{argument}: a value is missing; expected {}",
                expected(error)
            )
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = strings(error, ContextKind::InvalidArg).join(", ");
            format!("{} is missing; see --help", missing.replace(['<', '>'], ""))
        }
        _ => first_paragraph(&error.render().to_string()),
    }
}

/// Whether a flag is one of a run. Commands with the settings of a run know it, so only another command refuses it.
fn is_setting(flag: &str) -> bool {
    KEYS.iter()
        .any(|key| flag.strip_prefix("--") == Some(key.name))
}

/// `--min-np <N>` without its value names. `--num-proc` is shown as `-np`.
fn option_name(text: &str) -> &str {
    match text.split([' ', '=']).next() {
        Some("--num-proc") => "-np",
        Some(name) => name.trim_matches(['<', '>']),
        None => text,
    }
}

/// The option with its value names, without clap's brackets.
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
