//! Given files on the web: `https://host/file.parquet`, and files of the Hugging Face Hub,
//! `hf://datasets/OWNER/NAME[@REVISION]/file.parquet`.
//!
//! Servers of the web list nothing, so each address names one file. The Hub redirects to other hosts, where the token is not sent.

use std::sync::Arc;

use object_store::{ClientConfigKey, ClientOptions, ObjectStore, http::HttpBuilder};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::StorageOptions;
use crate::error::Problem;

/// Where the Hub is, unless `HF_ENDPOINT` or the option `endpoint` says otherwise.
const HUB: &str = "https://huggingface.co";

/// Whether addresses of this scheme name given files.
pub(super) fn is_web(scheme: &str) -> bool {
    ["http", "https", "hf"].contains(&scheme)
}

/// Splits the address of a file on the Hub into that of its repository and the path in it. `None` if it has another form.
pub(super) fn split_hub(address: &str) -> Option<(&str, &str)> {
    let rest = address.strip_prefix("hf://")?;
    let mut ends = rest.match_indices('/').map(|(at, _)| at);
    let (first, _, third) = (ends.next()?, ends.next()?, ends.next()?);
    let (repository, path) = address.split_at("hf://".len() + third + 1);
    let names: Vec<&str> = rest[..third].split('/').collect();
    let is_whole = names.iter().all(|name| !name.is_empty()) && !path.is_empty();
    (&rest[..first] == "datasets" && is_whole).then_some((repository, path))
}

/// Connects to a server, or to a repository of the Hub.
pub(super) fn connect(
    bucket: &str,
    options: &StorageOptions,
) -> Result<Arc<dyn ObjectStore>, Problem> {
    // A provider that the process has installed before works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (mut endpoint, mut token) = (None, None);
    let mut client = ClientOptions::new();
    let is_hub = bucket.starts_with("hf://");
    for (name, value) in options.iter() {
        match (name, name.to_ascii_lowercase().parse::<ClientConfigKey>()) {
            ("endpoint", _) if is_hub => endpoint = Some(value.to_owned()),
            ("token", _) if is_hub => token = Some(value.to_owned()),
            (_, Ok(key)) => client = client.with_config(key, value),
            (_, Err(_)) => {
                let scheme = bucket.split("://").next().unwrap_or_default();
                let own = if is_hub { "token, endpoint, " } else { "" };
                let why = format!(
                    "{scheme} has no storage option {name:?}; some of those that it has: {own}timeout, proxy_url"
                );
                return Err(Problem::BadOption(why));
            }
        }
    }
    let url = match bucket.strip_prefix("hf://") {
        None => bucket.to_owned(),
        Some(repository) => {
            let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
            let endpoint = endpoint.or_else(|| variable("HF_ENDPOINT"));
            token = token.or_else(|| variable("HF_TOKEN"));
            base_of(endpoint.as_deref().unwrap_or(HUB), repository)
        }
    };
    if let Some(token) = token {
        client = client.with_default_headers(headers(&token)?);
    }
    // The scheme is the choice of the user.
    let client = client.with_allow_http(url.starts_with("http://"));
    let store = HttpBuilder::new().with_url(url).with_client_options(client);
    let store = store.build().map_err(|error| {
        let why = options.hide_in(&error.to_string());
        Problem::BadOption(format!("cannot open the server: {why}"))
    })?;
    Ok(Arc::new(store))
}

/// Where the files of a repository are: `datasets/OWNER/NAME[@REVISION]/`.
fn base_of(endpoint: &str, repository: &str) -> String {
    let endpoint = endpoint.trim_end_matches('/');
    let repository = repository.trim_end_matches('/');
    let (name, revision) = repository.split_once('@').unwrap_or((repository, "main"));
    // A revision such as `refs/convert/parquet` is one component of the path.
    let revision = revision.replace("%2F", "/").replace('/', "%2F");
    format!("{endpoint}/{name}/resolve/{revision}")
}

fn headers(token: &str) -> Result<HeaderMap, Problem> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value
        .map_err(|_| Problem::BadOption("the token has characters that no token has".to_owned()))?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_hub_has_a_repository_and_a_path() {
        let split = split_hub("hf://datasets/o/n@v1/data/a.parquet");
        assert_eq!(split, Some(("hf://datasets/o/n@v1/", "data/a.parquet")));
        for other in [
            "hf://datasets/o/n",
            "hf://datasets/o/n/",
            "hf://datasets//n/a",
            "hf://o/n/a.parquet",
            "hf://models/o/n/a.parquet",
            "s3://datasets/o/n/a",
        ] {
            assert_eq!(split_hub(other), None, "{other}");
        }
    }

    #[test]
    fn files_of_a_repository_are_below_its_revision() {
        let base = |repository| base_of("https://hub.example/", repository);
        assert_eq!(
            base("datasets/o/n/"),
            "https://hub.example/datasets/o/n/resolve/main"
        );
        assert_eq!(
            base("datasets/o/n@refs%2Fconvert%2Fparquet/"),
            "https://hub.example/datasets/o/n/resolve/refs%2Fconvert%2Fparquet"
        );
    }

    #[test]
    fn other_options_are_refused_and_tokens_are_not_shown() {
        let connect = |bucket: &str, name: &str, value: &str| {
            let options = [(name.to_owned(), value.to_owned())];
            connect(bucket, &options.into_iter().collect()).map_err(|problem| problem.to_string())
        };
        connect("hf://datasets/o/n/", "token", "hf_hush").unwrap();
        connect("https://host/", "timeout", "5s").unwrap();
        let error = connect("hf://datasets/o/n/", "secret", "hush").unwrap_err();
        assert!(error.contains("hf has no storage option \"secret\"") && !error.contains("hush"));
        let error = connect("https://host/", "token", "hush").unwrap_err();
        assert!(
            error.contains("https has no storage option \"token\""),
            "{error}"
        );
        let error = connect("hf://datasets/o/n/", "token", "hu\nsh").unwrap_err();
        assert!(
            !error.contains("sh\n") && error.contains("the token has"),
            "{error}"
        );
    }
}
