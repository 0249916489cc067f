//! Where commits are written durably (`--durable-commits`).

use std::path::{Path, PathBuf};

use toml::Value;

use super::{error::Error, paths, settings::Durable, table::Config, value::Setting};

/// A place for durable commits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DurablePlace {
    /// A directory that all hosts share.
    Directory(PathBuf),
    /// The address of a bucket, with a prefix in it.
    Bucket(String),
}

impl DurablePlace {
    /// The place as other processes are told.
    ///
    /// # Errors
    /// Why they cannot be told.
    pub(super) fn sent(&self) -> Result<String, &'static str> {
        match self {
            Self::Bucket(address) => Ok(address.clone()),
            Self::Directory(path) => {
                let path = paths::absolute(path.clone());
                let path = path.to_str().map(str::to_owned);
                path.ok_or("is not UTF-8: agents cannot be told")
            }
        }
    }

    /// The path of a directory.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Directory(path) => Some(path),
            Self::Bucket(_) => None,
        }
    }
}

/// Whether an address names a bucket of a service that agents can use, and a prefix that an object can have.
fn is_bucket(address: &str) -> bool {
    let rest = ["s3://", "gs://"]
        .iter()
        .find_map(|scheme| address.strip_prefix(scheme));
    let Some(rest) = rest else { return false };
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_part = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(char::is_control);
    let prefix = prefix.trim_end_matches('/');
    !bucket.is_empty()
        && bucket.chars().all(is_allowed)
        && (prefix.is_empty() || prefix.split('/').all(is_part))
}

impl Setting for DurablePlace {
    fn read(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if is_bucket(word) => Ok(Self::Bucket(word.clone())),
            // The address of another service, and no path.
            [word] if word.contains("://") => Err(ALLOWED.to_owned()),
            words => PathBuf::read(words)
                .map(Self::Directory)
                .map_err(|_| ALLOWED.to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        match self {
            Self::Directory(path) => path.show(),
            Self::Bucket(address) => Some(Value::String(address.clone())),
        }
    }
}

/// The run that a new job continues from (`--resume-from`).
///
/// The default is none: a directory may hold commits of another program, and a job that is started again may be meant to
/// begin anew. Nothing is lost by that, since commits of other runs are never removed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResumeFrom {
    /// The job begins anew.
    None,
    /// The run that wrote last. The job begins anew if the directory has no commit.
    Latest,
    /// This run.
    Run(String),
}

impl Setting for ResumeFrom {
    fn read(words: &[String]) -> Result<Self, String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        match words {
            [word] if word == "none" => Ok(Self::None),
            [word] if word == "latest" => Ok(Self::Latest),
            [word] if !word.is_empty() && word.chars().all(is_name) => Ok(Self::Run(word.clone())),
            _ => Err("the id of a run, latest or none".to_owned()),
        }
    }

    fn show(&self) -> Option<Value> {
        Some(Value::String(match self {
            Self::None => "none".to_owned(),
            Self::Latest => "latest".to_owned(),
            Self::Run(run_id) => run_id.clone(),
        }))
    }
}

const NEEDS: &str = "needs --durable-commits PLACE";

const ALLOWED: &str = "a directory that all hosts share, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX";

/// The durable store of a job, if it has one.
///
/// # Errors
/// A setting that has no effect without a place, or a path that no agent can be told.
pub(super) fn durable(config: &Config) -> Result<Option<Durable>, Error> {
    let Some(place) = &config.durable_commits.value else {
        if config.durable_interval.is_given() {
            return Err(config
                .durable_interval
                .contradicts("durable-interval", NEEDS));
        }
        if config.resume_from.value != ResumeFrom::None {
            return Err(config.resume_from.contradicts("resume-from", NEEDS));
        }
        return Ok(None);
    };
    let place = place
        .sent()
        .map_err(|why| config.durable_commits.contradicts("durable-commits", why))?;
    Ok(Some(Durable {
        place,
        interval: config.durable_interval.value.get(),
        resume_from: config.resume_from.value.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_path_or_a_bucket() {
        let read = |word: &str| DurablePlace::read(&[word.to_owned()]);
        assert_eq!(read("a/b"), Ok(DurablePlace::Directory("a/b".into())));
        for bucket in ["s3://a", "s3://a/b/c", "gs://a-b.c/"] {
            assert_eq!(read(bucket), Ok(DurablePlace::Bucket(bucket.into())));
        }
        for wrong in [
            "",
            "etcd://a:2379",
            "a\0b",
            "s3://",
            "gs:///b",
            "s3://a?b/c",
            "s3://a/b//c",
            "s3://a//b",
            "s3://a/b/../c",
        ] {
            assert_eq!(read(wrong), Err(ALLOWED.to_owned()), "{wrong:?}");
        }
    }

    #[test]
    fn a_run_is_a_name_and_no_path() {
        let read = |word: &str| ResumeFrom::read(&[word.to_owned()]).ok();
        assert_eq!(read("none"), Some(ResumeFrom::None));
        assert_eq!(read("latest"), Some(ResumeFrom::Latest));
        assert_eq!(read("1f2e3d4c"), Some(ResumeFrom::Run("1f2e3d4c".into())));
        for wrong in ["", "..", "a/b", "a b"] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
