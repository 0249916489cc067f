//! `elasticrun man`: the man page, in the language of `man`.
//!
//! Options, subcommands and exit codes come from the definitions that `--help` is made of. `man/end.roff` adds what `--help`
//! leaves to the documentation.

use std::fmt::Write;

use clap::{Arg, Command};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};

use super::{Invocation, command, refusal, tree};
use crate::{config::Error, exit};

const NAME: &str = "run distributed training on hosts that can join or leave during the job";

/// The apostrophe, which roff defines at the start of each part.
const DEFINITIONS: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

const END: &str = include_str!("man/end.roff");

/// Parses the words after `man`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    match tree::man().try_get_matches_from(words) {
        Ok(_) => page().map(Invocation::Print),
        Err(error) => refusal::answer(&error),
    }
}

fn page() -> Result<String, Error> {
    let mut tree = tree::root()?;
    tree.build();
    let about = tree.get_about().map(ToString::to_string);
    let description = format!("{}\n\n{}", about.unwrap_or_default(), command::AFTER);
    let usage = tree
        .get_subcommands()
        .flat_map(leaves)
        .map(|leaf| {
            usage(leaf).replace(
                "elasticrun run",
                "elasticrun [run] [OPTIONS] [--] COMMAND...",
            )
        })
        .collect::<Vec<_>>();
    let page = tree
        .clone()
        .about(NAME)
        .long_about(description)
        .override_usage(usage.join("\n"))
        .mut_args(with_aliases);
    let headings: Vec<_> = page
        .get_arguments()
        .filter_map(Arg::get_help_heading)
        .map(str::to_owned)
        .collect();
    let man = Man::new(page);
    let mut text = rendered(|to| {
        man.render_name_section(to)?;
        man.render_synopsis_section(to)?;
        man.render_description_section(to)?;
        man.render_options_section(to)
    });
    for heading in headings {
        // The groups of options are parts of one section.
        let section = format!(".SH {}\n", heading.to_uppercase());
        text = text.replace(&section, &format!(".SS {heading}\n"));
    }
    text += &subcommands(&tree);
    text += &exit_codes();
    // Without a date, clap_mangen's title would show the version as the date.
    let title = format!(
        ".TH elasticrun 1 \"\" \"elasticrun {}\"\n",
        env!("CARGO_PKG_VERSION")
    );
    Ok(format!("{DEFINITIONS}{title}{text}{END}"))
}

/// The text of a part. The page begins with the definitions that each part repeats.
fn rendered(render: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    render(&mut text).expect("writing to memory does not fail");
    let text = String::from_utf8(text).expect("texts of the command line are UTF-8");
    text.replace(DEFINITIONS, "")
}

/// The option with its other names in its help. `--help` adds them by itself.
fn with_aliases(arg: Arg) -> Arg {
    let aliases = arg.get_visible_aliases().unwrap_or_default();
    let Some(help) = arg.get_help().filter(|_| !aliases.is_empty()) else {
        return arg;
    };
    let mut help = help.to_string();
    for alias in aliases {
        write!(help, " [alias: --{alias}]").expect("writing to a string does not fail");
    }
    arg.help(help)
}

/// A command, or the subcommands of one that does nothing by itself.
fn leaves(command: &Command) -> Vec<&Command> {
    if command.has_subcommands() {
        command.get_subcommands().collect()
    } else {
        vec![command]
    }
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_owned()
}

/// Each subcommand with its own options. Settings of a run and options of a whole group are listed once.
fn subcommands(tree: &Command) -> String {
    let mut text = ".SH COMMANDS\n".to_owned();
    for group in tree
        .get_subcommands()
        .filter(|command| command.get_name() != "run")
    {
        for leaf in leaves(group) {
            let mut roff = Roff::new();
            roff.control("TP", []);
            roff.text([bold(usage(leaf))]);
            let about = leaf.get_long_about().or_else(|| leaf.get_about());
            let about = about.map(ToString::to_string).unwrap_or_default();
            for (number, paragraph) in about.split("\n\n").enumerate() {
                if number > 0 {
                    roff.control("IP", []);
                }
                for (number, line) in paragraph.lines().enumerate() {
                    if number > 0 {
                        roff.control("br", []);
                    }
                    roff.text([roman(line)]);
                }
            }
            text += &rendered(|to| roff.to_writer(to));
            let args = leaf.get_arguments().filter(|arg| !arg.is_global_set());
            text += &options(args);
        }
        let args = group.get_arguments().filter(|arg| arg.is_global_set());
        let common = options(args);
        if !common.is_empty() {
            write!(
                text,
                ".TP\n\\fBelasticrun {} ...\\fR\nOptions of all its commands:\n{common}",
                group.get_name()
            )
            .expect("writing to a string does not fail");
        }
    }
    text
}

/// A list of options, indented.
fn options<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let own: Vec<_> = args
        .filter(|arg| arg.get_help_heading().is_none())
        .filter(|arg| !["help", "config"].contains(&arg.get_id().as_str()))
        .cloned()
        .collect();
    if own.is_empty() {
        return String::new();
    }
    let man = Man::new(Command::new("options").disable_help_flag(true).args(own));
    let text = rendered(|to| man.render_options_section(to));
    format!(".RS\n{}.RE\n", text.replacen(".SH OPTIONS\n", "", 1))
}

fn exit_codes() -> String {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT CODES"]);
    for (code, meaning) in exit::DOCUMENTED {
        roff.control("TP", []);
        roff.text([bold(code)]);
        roff.text([roman(meaning)]);
    }
    rendered(|to| roff.to_writer(to))
}
