//! The prefix of a line of output that a user gives (`--line-prefix`), in torchrun's notation.

use std::{fmt, io::Write};

use elasticrun_protocol::{HostId, Rank};
use toml::Value;

use super::value::Setting;

/// The text in front of each line. `${rank}`, `${local_rank}`, `${hostname}` and `${role_name}` have the values of the
/// worker, as in `[${role_name}${local_rank}]:`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrefixTemplate {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Part {
    Text(String),
    Rank,
    LocalRank,
    HostName,
    RoleName,
}

/// What a prefix tells about a worker.
#[derive(Clone, Copy, Debug)]
pub struct Labels<'a> {
    /// Its rank; none before it has one.
    pub rank: Option<Rank>,
    /// Its slot on the host.
    pub local_rank: u32,
    /// Its host.
    pub host: &'a HostId,
}

impl PrefixTemplate {
    /// The same text for workers of a role. The role of a worker without one is `default`.
    #[must_use]
    pub fn with_role(mut self, role: Option<&str>) -> Self {
        for part in &mut self.parts {
            if *part == Part::RoleName {
                *part = Part::Text(role.unwrap_or("default").to_owned());
            }
        }
        self
    }

    /// Appends the prefix of a line of this worker.
    pub fn write(&self, labels: &Labels<'_>, out: &mut Vec<u8>) {
        // Writing to a vector cannot fail.
        for part in &self.parts {
            let _ = match (part, labels.rank) {
                (Part::Text(text), _) => out.write_all(text.as_bytes()),
                (Part::Rank, Some(rank)) => write!(out, "{rank}"),
                (Part::Rank, None) => write!(out, "-"),
                (Part::LocalRank, _) => write!(out, "{}", labels.local_rank),
                (Part::HostName, _) => write!(out, "{}", labels.host),
                (Part::RoleName, _) => write!(out, "default"),
            };
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            let (part, left) = Part::parse(after)?;
            parts.extend([Part::Text(before.to_owned()), part]);
            rest = left;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| *part != Part::Text(String::new()));
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }
}

impl Part {
    /// The macro whose text behind `$` begins `text`, and what follows it.
    fn parse(text: &str) -> Result<(Self, &str), String> {
        if let Some(rest) = text.strip_prefix('$') {
            return Ok((Self::Text("$".to_owned()), rest));
        }
        let (name, rest) = match text.strip_prefix('{') {
            Some(braced) => braced.split_once('}').ok_or(ALLOWED)?,
            None => text.split_at(
                text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(text.len()),
            ),
        };
        let part = match name {
            "rank" => Self::Rank,
            "local_rank" => Self::LocalRank,
            "hostname" => Self::HostName,
            "role_name" => Self::RoleName,
            _ => return Err(ALLOWED.to_owned()),
        };
        Ok((part, rest))
    }
}

impl fmt::Display for PrefixTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Setting for PrefixTemplate {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if !word.is_empty() && !word.contains(['\n', '\r']) => Self::parse(word),
            _ => Err(ALLOWED.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(self.text.clone()))
    }
}

const ALLOWED: &str =
    "one line of text with ${rank}, ${local_rank}, ${hostname} and ${role_name}, and $$ for $";

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(template: &str, rank: Option<Rank>) -> Result<String, String> {
        let template = PrefixTemplate::read(&[template.to_owned()])?.with_role(Some("trainer"));
        let host = HostId::new("node2");
        let labels = Labels {
            rank,
            local_rank: 1,
            host: &host,
        };
        let mut out = Vec::new();
        template.write(&labels, &mut out);
        Ok(String::from_utf8(out).expect("text"))
    }

    #[test]
    fn macros_have_the_values_of_the_worker() {
        for (template, expected) in [
            ("[${role_name}${local_rank}]:", "[trainer1]:"),
            ("${hostname}:$rank: ", "node2:5: "),
            ("$$${rank}", "$5"),
            ("text é ", "text é "),
        ] {
            assert_eq!(shown(template, Some(Rank(5))).as_deref(), Ok(expected));
        }
        assert_eq!(shown("${rank}", None).as_deref(), Ok("-"));
    }

    #[test]
    fn a_macro_that_does_not_exist_is_refused() {
        for template in ["", "${pid}", "$", "${rank", "$1", "a\nb", "${}"] {
            assert_eq!(shown(template, None), Err(ALLOWED.to_owned()), "{template}");
        }
    }

    #[test]
    fn a_worker_without_a_role_has_the_default() {
        let template = PrefixTemplate::parse("$role_name").expect("a macro");
        let template = template.with_role(None);
        assert_eq!(template.parts, [Part::Text("default".to_owned())]);
        assert_eq!(template.to_string(), "$role_name");
    }
}
