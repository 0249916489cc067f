//! `elasticrun plugin ...`: the options.

use std::path::PathBuf;

use clap::{Args, Command, Subcommand, ValueEnum};
use elasticrun_plugin_loader::{Allowed, Isolation, Spec};

use super::{
    Invocation,
    command::{self, base},
};
use crate::config::{Error, Setting};

/// The command `plugin`.
#[derive(Clone, PartialEq, Debug)]
pub struct PluginRequest {
    /// The subcommand.
    pub command: PluginCommand,
    /// Directories that are searched first.
    pub directories: Vec<PathBuf>,
    /// Where plugins run that are not built in.
    pub isolation: Isolation,
    /// The plugins that may run in addition to those built in. Empty stands for all.
    pub allowed: Vec<Allowed>,
    /// Print JSON.
    pub json: bool,
}

/// A subcommand of `plugin`.
#[derive(Clone, PartialEq, Debug)]
pub enum PluginCommand {
    /// List all plugins.
    List,
    /// Print the manifest of a plugin.
    Inspect(String),
    /// Run the conformance suite on a plugin.
    Test(Spec),
    /// Create a project for a new plugin.
    New(NewPlugin),
}

/// A project for a new plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPlugin {
    /// Lower-case letters, digits and `-`. Also the name of the new directory.
    pub name: String,
    /// The language.
    pub language: Language,
    /// The directory of the SDK's sources. `None` stands for the installed one.
    pub sdk: Option<PathBuf>,
}

/// A language with a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Language {
    /// A library, built with the SDK.
    Rust,
    /// A library, built with the C header.
    C,
    /// A program that exchanges frames.
    Python,
}

#[derive(Args, Debug)]
struct Options {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    common: Common,
}

#[derive(Args, Debug)]
struct Common {
    /// Directory to search for plugins first; may be repeated
    #[arg(long, value_name = "DIR", global = true)]
    plugin_dir: Vec<PathBuf>,
    /// Where plugins run that are not built in: process (one each), or thread (in this program) [default: process]
    #[arg(long, value_name = "WHERE", global = true)]
    plugin_isolation: Option<String>,
    /// Allow only built-in plugins and those with this hash; may be repeated
    #[arg(long, value_name = "NAME=sha256:HASH", global = true)]
    plugin_allow: Vec<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Lists the built-in plugins and those in the plugin directories
    List,
    /// Prints a plugin's version, options, variables, permissions and hash
    Inspect {
        /// Name of the plugin
        name: String,
    },
    /// Tests whether a plugin follows the rules; exit code 1 if not
    Test {
        /// Name of the plugin, with valid options
        #[arg(value_name = "NAME[:K=V,...]")]
        spec: String,
    },
    /// Creates a project for a plugin, in a directory of its name
    New {
        /// Name of the plugin: lower-case letters, digits and '-'
        name: String,
        /// Language: rust, c or python
        #[arg(long, value_name = "LANGUAGE", value_enum, hide_possible_values = true)]
        lang: Language,
        /// For rust: directory of elasticrun-plugin-sdk [default: the one that is installed with elasticrun]
        #[arg(long, value_name = "PATH")]
        sdk: Option<PathBuf>,
    },
}

const ABOUT: &str = "Lists, describes, tests and creates discovery plugins.";

/// The command for clap.
pub(super) fn command() -> Command {
    Options::augment_args(base("plugin", "elasticrun plugin"))
        .about(ABOUT)
        .arg_required_else_help(false)
}

/// Parses the words after `plugin`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    command::parse(command(), words, |options: Options| {
        options.request().map(Invocation::Plugin)
    })
}

impl Options {
    fn request(self) -> Result<PluginRequest, Error> {
        let Common {
            plugin_dir,
            plugin_isolation,
            plugin_allow,
            json,
        } = self.common;
        let isolation = plugin_isolation.map_or(Ok(Isolation::default()), |word| {
            Isolation::read(std::slice::from_ref(&word))
                .map_err(|allowed| usage(format!("--plugin-isolation {word}: expected {allowed}")))
        })?;
        let allow = |word: String| {
            Allowed::read(std::slice::from_ref(&word))
                .map_err(|allowed| usage(format!("--plugin-allow {word}: expected {allowed}")))
        };
        Ok(PluginRequest {
            command: self.what.command()?,
            directories: plugin_dir,
            isolation,
            allowed: plugin_allow
                .into_iter()
                .map(allow)
                .collect::<Result<_, _>>()?,
            json,
        })
    }
}

impl What {
    fn command(self) -> Result<PluginCommand, Error> {
        let plain_name = |text: String| match text.parse::<Spec>() {
            Ok(spec) if spec.options.is_empty() => Ok(spec.name),
            Ok(_) => Err(usage(format!("{text}: expected a name without options"))),
            Err(error) => Err(usage(error.to_string())),
        };
        Ok(match self {
            Self::List => PluginCommand::List,
            Self::Inspect { name } => PluginCommand::Inspect(plain_name(name)?),
            Self::Test { spec } => PluginCommand::Test(
                spec.parse()
                    .map_err(|error| usage(format!("plugin test {spec}: {error}")))?,
            ),
            Self::New { name, lang, sdk } => {
                if sdk.is_some() && lang != Language::Rust {
                    return Err(usage("--sdk: only together with --lang rust".to_owned()));
                }
                PluginCommand::New(NewPlugin {
                    name: plain_name(name)?,
                    language: lang,
                    sdk,
                })
            }
        })
    }
}

fn usage(message: String) -> Error {
    Error::Usage { message }
}
