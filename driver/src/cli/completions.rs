//! `elasticrun completions SHELL`: a script that completes the command line of `elasticrun` in a shell.
//!
//! clap_complete generates the part for options and subcommands. Three things it cannot know: COMMAND follows the options
//! and is completed by the shell as if it stood alone, its words may have the names of subcommands, and some options have one dash
//! (`argv`). A script of this directory finds the start of COMMAND, and calls the generated part for words before it.

use clap::{Arg, Command, ValueHint, builder::PossibleValuesParser};
use clap_complete::{generate, shells};

use super::{Invocation, argv, command, refusal, tree};
use crate::config::{Error, KEYS};

/// Parses the words after `completions`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    let matches = match tree::completions().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    let shell = matches.get_one::<String>("shell").map(String::as_str);
    script(shell.unwrap_or_default()).map(Invocation::Print)
}

fn script(shell: &str) -> Result<String, Error> {
    let mut tree = hinted(tree::root()?);
    let mut generated = Vec::new();
    let own = match shell {
        "fish" => {
            generate(shells::Fish, &mut tree, "elasticrun", &mut generated);
            include_str!("completions/command.fish")
        }
        "zsh" => {
            generate(shells::Zsh, &mut tree, "elasticrun", &mut generated);
            include_str!("completions/command.zsh")
        }
        _ => {
            generate(shells::Bash, &mut tree, "elasticrun", &mut generated);
            include_str!("completions/command.bash")
        }
    };
    let generated = String::from_utf8_lossy(&generated);
    let generated = match shell {
        // Subcommands are only the first word.
        "fish" => generated.replace(
            "-n \"__fish_elasticrun_needs_command\" -f -a",
            "-n __fish_elasticrun_is_first -f -a",
        ),
        // The function of the script is the one that zsh calls.
        "zsh" => {
            let (functions, _) = generated
                .split_once("\nif [ \"$funcstack[1]\"")
                .unwrap_or((&generated, ""));
            functions.replace("_elasticrun() {", "_elasticrun_options() {")
        }
        _ => generated.into_owned(),
    };
    Ok(generated + &filled(own, shell, &command::parser(tree::root()?)?))
}

/// The tree with what shells complete as the values of options.
fn hinted(tree: Command) -> Command {
    tree.mut_args(|arg| {
        let words = KEYS
            .iter()
            .find(|key| key.name == arg.get_id().as_str().replace('_', "-"))
            .map_or(&[][..], |key| key.words);
        if !words.is_empty() {
            return arg.value_parser(PossibleValuesParser::new(words));
        }
        let name = arg.get_value_names().and_then(|names| names.first());
        let hint = match name.map(|name| name.as_str()) {
            Some("FILE" | "PATH") => ValueHint::FilePath,
            Some("DIR") => ValueHint::DirPath,
            Some("HOST") => ValueHint::Hostname,
            _ => ValueHint::Other,
        };
        if arg.get_action().takes_values() {
            arg.value_hint(hint)
        } else {
            arg
        }
    })
    .mut_subcommands(hinted)
}

/// A script with the names of options and subcommands that it needs to find the start of COMMAND.
fn filled(script: &str, shell: &str, parser: &Command) -> String {
    let separator = if shell == "fish" { " " } else { "|" };
    let subcommands: Vec<_> = parser
        .get_subcommands()
        .map(Command::get_name)
        .filter(|name| *name != "run")
        .collect();
    let single_dash = argv::SINGLE_DASH.map(|(name, _)| name);
    script
        .replace("@SUBCOMMANDS@", &subcommands.join(separator))
        .replace("@SINGLE_DASH@", &single_dash.join(separator))
        .replace("@ONE@", &spellings(parser, 1).join(separator))
        .replace("@TWO@", &spellings(parser, 2).join(separator))
}

/// Every spelling of the options that take so many words, hidden options included.
fn spellings(parser: &Command, words: usize) -> Vec<String> {
    let takes = |arg: &&Arg| !arg.is_positional() && argv::values(arg) == words;
    let mut found = Vec::new();
    for arg in parser.get_arguments().filter(takes) {
        let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
        found.extend(shorts.iter().map(|letter| format!("-{letter}")));
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        found.extend(longs.iter().map(|long| format!("--{long}")));
        let single = argv::SINGLE_DASH
            .iter()
            .filter(|(_, long)| longs.iter().any(|name| long[2..] == **name));
        found.extend(single.map(|(name, _)| (*name).to_owned()));
    }
    found
}
