//! The conformance suite for authors of plugins: `elasticrun plugin test`.
//!
//! Each check creates its own instances, so that checks are independent. An isolated plugin may crash in any check. A crash
//! of a plugin in this process ends the suite.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use elasticrun_plugin_sdk::Command;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Failure, FailureKind, Isolation, Live, Manifest, Plugin, Snapshot};

/// Time for a call that may talk to a source.
const DEADLINE: Duration = Duration::from_secs(30);
/// A deadline that few plugins keep. They must return soon after it.
const SHORT: Duration = Duration::from_millis(1);
/// An option that no plugin has.
const NO_OPTION: &str = "no_plugin_has_this_option";

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A short name, such as `stable-ids`.
    pub name: &'static str,
    /// Whether the plugin passed.
    pub passed: bool,
    /// The observation, or the mistake and its remedy.
    pub detail: String,
    /// The duration of the check.
    #[serde(rename = "ms", serialize_with = "millis")]
    pub took: Duration,
}

fn millis<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u128(time.as_millis())
}

/// The observation, or the mistake.
type Outcome = Result<String, String>;
type Rule = fn(&Suite) -> Outcome;

/// The checks, in their order.
const RULES: [(&str, Rule); 9] = [
    ("manifest", Suite::manifest),
    ("schema", Suite::schema),
    ("bad-config", Suite::bad_config),
    ("poll", Suite::poll),
    ("stable-ids", Suite::stable_ids),
    ("short-deadline", Suite::short_deadline),
    ("cancel", Suite::cancel),
    ("stdout", Suite::stdout),
    ("self-test", Suite::self_test),
];

/// Runs all checks with options that the plugin should accept. Calls `done` after each check.
pub fn check(
    plugin: &Plugin,
    options: &Map<String, Value>,
    mut done: impl FnMut(&Check),
) -> Vec<Check> {
    let suite = Suite {
        plugin: plugin.clone(),
        options: options.clone(),
    };
    let run = |(name, rule): (&'static str, Rule)| {
        let started = Instant::now();
        let result = rule(&suite);
        let passed = result.is_ok();
        let check = Check {
            name,
            passed,
            detail: result.unwrap_or_else(|why| why),
            took: started.elapsed(),
        };
        done(&check);
        check
    };
    RULES.into_iter().map(run).collect()
}

struct Suite {
    plugin: Plugin,
    options: Map<String, Value>,
}

impl Suite {
    fn start(&self) -> Result<Live, String> {
        self.start_with(&self.options)
            .map_err(|failure| format!("create failed: {}", describe(&failure)))
    }

    fn start_with(&self, options: &Map<String, Value>) -> Result<Live, Failure> {
        self.plugin.start(options, DEADLINE, Box::new(|| ()))
    }

    fn manifest(&self) -> Outcome {
        let Manifest {
            name,
            version,
            license,
            description,
            ..
        } = self.plugin.manifest();
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.starts_with('-') || !name.bytes().all(good) {
            return Err(format!(
                "the name {name:?} has something else than small letters, digits and '-'"
            ));
        }
        for (what, text) in [
            ("version", version),
            ("license", license),
            ("description", description),
        ] {
            if text.trim().is_empty() {
                return Err(format!("it tells no {what}; people see it in plugin list"));
            }
        }
        Ok(format!("{name} {version}, {license}"))
    }

    /// The schema is valid and matches the given options.
    fn schema(&self) -> Outcome {
        let schema = &self.plugin.manifest().config;
        if schema.is_empty() {
            return Ok("it tells none; its options are shown to nobody".to_owned());
        }
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err("config: options are an object, so \"type\" must be \"object\"".to_owned());
        }
        let empty = Map::new();
        let properties = match schema.get("properties") {
            None => &empty,
            Some(properties) => properties
                .as_object()
                .ok_or("config: properties must be an object")?,
        };
        let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
        if let Some(name) = self
            .options
            .keys()
            .find(|name| closed && !properties.contains_key(*name))
        {
            return Err(format!(
                "config: the option {name} is given, which the schema does not have"
            ));
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !properties.contains_key(name) {
                return Err(format!(
                    "config: {name} is required, but not one of the properties"
                ));
            }
            if !self.options.contains_key(name) {
                return Err(format!(
                    "the option {name} is required; test it with :{name}=..."
                ));
            }
        }
        let names: Vec<_> = properties.keys().map(String::as_str).collect();
        Ok(format!("options: {}", names.join(", ")))
    }

    fn bad_config(&self) -> Outcome {
        let mut options = self.options.clone();
        options.insert(NO_OPTION.to_owned(), Value::from("x"));
        match self.start_with(&options) {
            Ok(live) => {
                live.end();
                Err(format!(
                    "the option {NO_OPTION} was accepted; a slip in an option must be refused as a bad configuration"
                ))
            }
            Err(failure)
                if failure.kind == FailureKind::BadConfig && !failure.message.is_empty() =>
            {
                Ok(failure.message)
            }
            Err(failure) => Err(format!(
                "the option {NO_OPTION} must be refused as a bad configuration, but it was: {}",
                describe(&failure)
            )),
        }
    }

    fn poll(&self) -> Outcome {
        let mut live = self.start()?;
        let snapshot = poll(&mut live)?;
        let ready = snapshot
            .hosts
            .iter()
            .filter(|host| host.state == crate::HostState::Ready);
        Ok(format!(
            "{} hosts, {} of them ready",
            snapshot.hosts.len(),
            ready.count()
        ))
    }

    fn stable_ids(&self) -> Outcome {
        let mut live = self.start()?;
        let first = ids(&poll(&mut live)?);
        for poll_number in [2, 3] {
            same(
                &first,
                &ids(&poll(&mut live)?),
                &format!("poll {poll_number}"),
            )?;
        }
        live.end();
        let mut anew = self.start()?;
        same(&first, &ids(&poll(&mut anew)?), "a new instance")?;
        Ok(format!(
            "{} ids over three polls and a new instance",
            first.len()
        ))
    }

    fn short_deadline(&self) -> Outcome {
        let mut live = self.start()?;
        let started = Instant::now();
        let result = live.poll(SHORT);
        let took = started.elapsed();
        match result {
            Ok(_) => Ok(format!("it answered in {took:.1?}")),
            Err(failure)
                if matches!(
                    failure.kind,
                    FailureKind::Retryable | FailureKind::Throttled
                ) =>
            {
                // The instance must still work.
                poll(&mut live)?;
                Ok(format!("it gave up in {took:.1?}: {}", failure.message))
            }
            Err(failure) => Err(format!(
                "a poll with a deadline of {SHORT:?} must give a list or a retryable failure, but it was: {}",
                describe(&failure)
            )),
        }
    }

    /// The plugin can be destroyed at any time, and then ends by itself.
    fn cancel(&self) -> Outcome {
        let unused = self.start()?;
        if !unused.end() {
            return Err(
                "it did not end within 2 s of being destroyed before its first poll".to_owned(),
            );
        }
        let mut live = self.start()?;
        poll(&mut live)?;
        if !live.end() {
            return Err("it did not end within 2 s of being destroyed".to_owned());
        }
        Ok("destroyed before and after a poll".to_owned())
    }

    fn stdout(&self) -> Outcome {
        if self.plugin.isolation() == Isolation::Thread {
            return Ok("not looked at: it runs in this process".to_owned());
        }
        let mut live = self.start()?;
        poll(&mut live)?;
        match live.printed() {
            0 => Ok("nothing is printed".to_owned()),
            bytes => Err(format!(
                "{bytes} bytes were printed to standard output; write to standard error or to the log"
            )),
        }
    }

    fn self_test(&self) -> Outcome {
        let mut live = self.start()?;
        live.command(&Command::SelfTest, DEADLINE)
            .map_err(|failure| describe(&failure))?;
        Ok("passed".to_owned())
    }
}

fn poll(live: &mut Live) -> Result<Snapshot, String> {
    live.poll(DEADLINE)
        .map_err(|failure| format!("poll failed: {}", describe(&failure)))
}

fn describe(failure: &Failure) -> String {
    format!("{}: {}", failure.kind, failure.message)
}

fn ids(snapshot: &Snapshot) -> BTreeSet<String> {
    snapshot.hosts.iter().map(|host| host.id.clone()).collect()
}

fn same(first: &BTreeSet<String>, other: &BTreeSet<String>, when: &str) -> Result<(), String> {
    match first.symmetric_difference(other).next() {
        None => Ok(()),
        Some(id) => Err(format!(
            "{when} differs from the first poll by the host {id:?}; an id must be the same as long as the host is"
        )),
    }
}
