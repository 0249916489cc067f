//! `elasticrun plugin ...`: what is asked of the plugins of this machine.

use std::path::PathBuf;

use clap::{Args, Command, FromArgMatches, Subcommand, ValueEnum};
use elasticrun_plugin_loader::{Allowed, Isolation, Spec};

use super::{Invocation, refusal};
use crate::config::{Error, Setting};

/// What is asked of plugins.
#[derive(Clone, PartialEq, Debug)]
pub struct PluginRequest {
    /// What.
    pub what: PluginCommand,
    /// Where to look for them first.
    pub directories: Vec<PathBuf>,
    /// Where they run that are not built in.
    pub isolation: Isolation,
    /// The only ones that may run beside those built in; empty: all.
    pub allowed: Vec<Allowed>,
    /// Answer in JSON.
    pub json: bool,
}

/// One of the commands.
#[derive(Clone, PartialEq, Debug)]
pub enum PluginCommand {
    /// Which there are.
    List,
    /// What one says of itself.
    Inspect(String),
    /// Whether one keeps the rules.
    Test(Spec),
    /// A project for a new one.
    New(NewPlugin),
}

/// A project for a new plugin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewPlugin {
    /// Small letters, digits and `-`; also the name of the directory that is made.
    pub name: String,
    /// In which language.
    pub language: Language,
    /// Where the SDK's sources are; none: the published ones.
    pub sdk: Option<PathBuf>,
}

/// A language that there is a template for.
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
        #[arg(long, value_name = "LANGUAGE", value_enum)]
        lang: Language,
        /// For rust: directory of elasticrun-plugin-sdk [default: the published version]
        #[arg(long, value_name = "PATH")]
        sdk: Option<PathBuf>,
    },
}

const ABOUT: &str = "Lists, describes, tests and creates discovery plugins.";

/// Reads the words behind `plugin`.
pub(super) fn parse(words: Vec<String>) -> Result<Invocation, Error> {
    let command = Options::augment_args(Command::new("elasticrun plugin"))
        .about(ABOUT)
        .max_term_width(100)
        .no_binary_name(true)
        .disable_help_subcommand(true)
        .args_override_self(true);
    let matches = match command.try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) => return refusal::answer(&error),
    };
    let options = Options::from_arg_matches(&matches).map_err(|error| usage(error.to_string()))?;
    options.request().map(Invocation::Plugin)
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
            what: self.what.command()?,
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
        let name_of = |text: String| match text.parse::<Spec>() {
            Ok(spec) if spec.options.is_empty() => Ok(spec.name),
            Ok(_) => Err(usage(format!("{text}: expected a name without options"))),
            Err(error) => Err(usage(error.to_string())),
        };
        Ok(match self {
            Self::List => PluginCommand::List,
            Self::Inspect { name } => PluginCommand::Inspect(name_of(name)?),
            Self::Test { spec } => PluginCommand::Test(
                spec.parse()
                    .map_err(|error| usage(format!("plugin test {spec}: {error}")))?,
            ),
            Self::New { name, lang, sdk } => {
                if sdk.is_some() && lang != Language::Rust {
                    return Err(usage("--sdk: only together with --lang rust".to_owned()));
                }
                PluginCommand::New(NewPlugin {
                    name: name_of(name)?,
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
