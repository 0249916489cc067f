//! The log of launched agents. Their standard error comes to the driver, whose log has their records at level `debug`, in the
//! spans that the agent was in: job > round > host > worker. A warning about an option of the user keeps its level.

use elasticrun_plugin_sdk::text::one_line;
use elasticrun_protocol::HostId;
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::{Span, error_span};

use crate::config::LogLevel;

/// What agents log, and where it goes. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AgentLog {
    job: Span,
    level: LogLevel,
}

/// A record of an agent. Fields without a name here are those of the event.
#[derive(Debug, Deserialize)]
struct Record {
    level: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    spans: Vec<SpanFields>,
    /// The driver's log has its own.
    #[serde(rename = "timestamp")]
    _timestamp: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct SpanFields {
    name: String,
    #[serde(flatten)]
    fields: Map<String, Value>,
}

impl AgentLog {
    /// A log that belongs to the span `job`, at the level of the driver.
    pub(crate) fn new(job: Span, level: LogLevel) -> Self {
        Self { job, level }
    }

    /// The level of agents. Their warnings say why one ended, so they are always asked for.
    pub(super) fn level(&self) -> LogLevel {
        if self.level >= LogLevel::Debug {
            LogLevel::Debug
        } else {
            LogLevel::Warn
        }
    }

    /// The span of a host.
    pub(super) fn host(&self, host: &HostId) -> Span {
        error_span!(parent: &self.job, "host", id = %host)
    }

    /// Logs a line of the standard error of an agent. Returns what of it may say why the agent ended.
    pub(super) fn record(&self, host: &HostId, line: &str) -> Option<String> {
        let Some(record) = Record::read(line) else {
            // The last words of an agent, and what ssh or the login shell of the host writes.
            let line = one_line(line);
            self.host(host).in_scope(|| tracing::debug!(agent = %line));
            let line = line.trim_start_matches("elasticrun: ");
            return (!line.is_empty()).then(|| line.to_owned());
        };
        // In JSON a line may hold breaks and control characters.
        let text = one_line(&record.text());
        if record.is_about_option() {
            record
                .span(&self.job, host)
                .in_scope(|| tracing::warn!("{text}"));
        } else if tracing::enabled!(tracing::Level::DEBUG) {
            record
                .span(&self.job, host)
                .in_scope(|| tracing::debug!(agent_level = %record.level, "{text}"));
        }
        matches!(&*record.level, "WARN" | "ERROR").then_some(text)
    }
}

impl Record {
    fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Whether it is a warning about an option of the user, with whose name it begins.
    fn is_about_option(&self) -> bool {
        self.level == "WARN" && self.message.starts_with("--")
    }

    /// The message with its fields, as the text format has them.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.fields {
            let value = match value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            text.push_str(&format!(" {name}={value}"));
        }
        text
    }

    /// The span of this record, within the job. The host is the one whose agent wrote the record.
    fn span(&self, job: &Span, host: &HostId) -> Span {
        let mut span = job.clone();
        if let Some(number) = self.number("round", "number") {
            span = error_span!(parent: &span, "round", number);
        }
        span = error_span!(parent: &span, "host", id = %host);
        let local_rank = self.number("worker", "local_rank");
        let generation = self.number("worker", "generation");
        if let (Some(local_rank), Some(generation)) = (local_rank, generation) {
            span = error_span!(parent: &span, "worker", local_rank, generation);
        }
        span
    }

    fn number(&self, span: &str, field: &str) -> Option<u64> {
        let span = self.spans.iter().find(|each| each.name == span)?;
        span.fields.get(field)?.as_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(level: LogLevel) -> AgentLog {
        AgentLog::new(Span::none(), level)
    }

    fn tail(line: &str) -> Option<String> {
        log(LogLevel::Info).record(&HostId::new("a"), line)
    }

    #[test]
    fn warnings_say_why_an_agent_ended_and_details_do_not() {
        let line = |level| {
            format!(
                r#"{{"timestamp":"t","level":"{level}","message":"no memory","error":"full","pid":7,"spans":[]}}"#
            )
        };
        assert_eq!(tail(&line("WARN")).unwrap(), "no memory error=full pid=7");
        assert_eq!(tail(&line("DEBUG")), None);
    }

    #[test]
    fn a_warning_about_an_option_is_for_the_user() {
        let is_for_user = |level: &str, message: &str| {
            let line = format!(
                r#"{{"timestamp":"t","level":"{level}","message":"{message}","spans":[]}}"#
            );
            Record::read(&line).unwrap().is_about_option()
        };
        assert!(is_for_user("WARN", "--preload has no effect"));
        assert!(!is_for_user("INFO", "--preload has no effect"));
        assert!(!is_for_user("WARN", "no standby interpreters"));
    }

    #[test]
    fn a_line_that_is_no_record_is_kept_as_it_is() {
        assert_eq!(tail("elasticrun: no driver "), Some("no driver".into()));
        assert_eq!(tail("{\"level\":1}"), Some("{\"level\":1}".into()));
        assert_eq!(tail("  "), None);
    }

    #[test]
    fn what_an_agent_or_its_host_writes_is_one_line_without_control_characters() {
        let record = r#"{"timestamp":"t","level":"WARN","message":"a\nb\u001b[2J","spans":[]}"#;
        assert_eq!(tail(record).unwrap(), "a b [2J");
        assert_eq!(tail("motd \x1b[2J").unwrap(), "motd  [2J");
    }

    #[test]
    fn a_record_belongs_to_what_its_agent_was_at() {
        let read = |spans: &str| {
            let line =
                format!(r#"{{"timestamp":"t","level":"WARN","message":"m","spans":{spans}}}"#);
            let record = Record::read(&line).unwrap();
            ["round.number", "worker.local_rank", "worker.generation"].map(|path| {
                let (span, field) = path.split_once('.').unwrap();
                record.number(span, field)
            })
        };
        let all = r#"[{"run":"r","name":"job"},{"number":3,"name":"round"},{"id":"a","name":"host"},
            {"local_rank":1,"generation":2,"name":"worker"}]"#;
        assert_eq!(read(all), [Some(3), Some(1), Some(2)]);
        assert_eq!(read("[]"), [None; 3]);
    }

    #[test]
    fn agents_are_asked_for_details_only_if_the_driver_logs_them() {
        let levels = [
            LogLevel::Error,
            LogLevel::Info,
            LogLevel::Debug,
            LogLevel::Trace,
        ];
        let asked = levels.map(|level| log(level).level());
        assert_eq!(
            asked.map(LogLevel::name),
            ["warn", "warn", "debug", "debug"]
        );
    }
}
