//! Object stores: S3 and compatible ones, Google Cloud Storage, Azure Blob Storage, and given files on the web (`web`).
//!
//! Credentials, region and endpoint come from options, from the environment variables of the cloud's own tools
//! (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_KEY`, ...), or from the metadata
//! service of the host. Decoding threads
//! block on requests and drive them meanwhile.

use std::{collections::BTreeMap, fs::File, ops::Range, str::FromStr, sync::Arc, thread};

use bytes::Bytes;
use futures_util::{TryStreamExt, future::try_join_all};
use object_store::{
    GetOptions, ObjectMeta, ObjectStore,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorageBuilder, GoogleConfigKey},
    path::Path,
};
use tokio::runtime::{Builder, Handle, Runtime};

use super::{FileInfo, Storage, StorageOptions, is_data, web};
use crate::error::{Error, Problem, Result};

/// Objects of one or more buckets.
#[derive(Debug)]
pub(crate) struct ObjectStorage {
    runtime: Runtime,
    /// By `scheme://bucket/`.
    stores: BTreeMap<String, Arc<dyn ObjectStore>>,
    /// The roots: a store and a prefix.
    roots: Vec<(String, Path)>,
    options: StorageOptions,
}

impl ObjectStorage {
    /// # Errors
    /// If an address has no bucket, if there is no such option, or if the options or the environment are invalid.
    pub(crate) fn new(addresses: &[String], options: StorageOptions) -> Result<Self> {
        // A provider that the process has installed before works as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut stores = BTreeMap::new();
        let mut roots = Vec::new();
        for address in addresses {
            let (bucket, key) = split(address)?;
            if !stores.contains_key(bucket) {
                let store = connect(bucket, &options)
                    .map_err(|problem| Error::from(problem).in_file(address))?;
                stores.insert(bucket.to_owned(), store);
            }
            let key = Path::parse(key).map_err(|error| failed(error.into(), address, &options))?;
            roots.push((bucket.to_owned(), key));
        }
        Self::over(stores, roots, options)
    }

    fn over(
        stores: BTreeMap<String, Arc<dyn ObjectStore>>,
        roots: Vec<(String, Path)>,
        options: StorageOptions,
    ) -> Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Problem::Io)?;
        Ok(Self {
            runtime,
            stores,
            roots,
            options,
        })
    }

    /// Blocks on a request. May be called from any thread.
    fn wait<T: Send>(&self, request: impl Future<Output = T> + Send) -> T {
        if Handle::try_current().is_err() {
            return self.runtime.block_on(request);
        }
        // A thread of a runtime must not block on another runtime.
        thread::scope(|scope| {
            let waiting = scope.spawn(|| self.runtime.block_on(request));
            waiting
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    async fn list_root(&self, bucket: &str, key: &Path) -> Result<Vec<FileInfo>> {
        let store = &self.stores[bucket];
        let address = format!("{bucket}{key}");
        let found: Vec<ObjectMeta> = match web::is_web(scheme(bucket)) {
            true => Vec::new(),
            false => {
                let listed = store.list(Some(key)).try_collect().await;
                listed.map_err(|error| failed(error, &address, &self.options))?
            }
        };
        let below = key.parts().count();
        let files: Vec<FileInfo> = found
            .iter()
            .filter(|object| {
                let mut names = object.location.parts().skip(below);
                object.size > 0 && names.all(|name| is_data(name.as_ref()))
            })
            .map(|object| info(bucket, object))
            .collect();
        if !files.is_empty() {
            return Ok(files);
        }
        // Without objects below the prefix, it is an object itself or does not exist.
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let object = store
            .get_opts(key, options)
            .await
            .map_err(|error| match error {
                object_store::Error::NotFound { .. } => {
                    Error::from(Problem::no_such_path(&address)).in_file(&address)
                }
                other => failed(other, &address, &self.options),
            })?;
        Ok(vec![info(bucket, &object.meta)])
    }

    async fn read_range(&self, file: &FileInfo, range: Range<u64>) -> Result<Bytes> {
        let (bucket, key) = split(&file.name)?;
        let options = GetOptions {
            range: Some(range.clone().into()),
            ..GetOptions::default()
        };
        let result = async {
            let key = Path::parse(key)?;
            let found = self.stores[bucket].get_opts(&key, options).await?;
            let current = info(bucket, &found.meta);
            Ok((current, found.range.clone(), found.bytes().await?))
        };
        let (current, got, bytes) = result
            .await
            .map_err(|error| failed(error, &file.name, &self.options))?;
        if current != *file || got != range {
            let (was, is) = (file.describe(), current.describe());
            return Err(Error::from(Problem::Changed { was, is }).in_file(&file.name));
        }
        Ok(bytes)
    }
}

impl Storage for ObjectStorage {
    fn list(&self) -> Result<Vec<FileInfo>> {
        self.wait(async {
            let mut files = Vec::new();
            for (bucket, key) in &self.roots {
                files.extend(self.list_root(bucket, key).await?);
            }
            files.sort_by(|a, b| a.name.cmp(&b.name));
            files.dedup();
            Ok(files)
        })
    }

    fn relative_name<'a>(&self, file: &'a FileInfo) -> &'a str {
        let mut below = self.roots.iter().filter_map(|(bucket, key)| {
            let key = file.name.strip_prefix(bucket)?.strip_prefix(key.as_ref())?;
            Some(key.trim_start_matches('/'))
        });
        below.next().unwrap_or_default()
    }

    fn find_at_root(&self, name: &str) -> Result<Option<FileInfo>> {
        let Some((bucket, key)) = self.roots.first() else {
            return Ok(None);
        };
        let key = key.clone().join(name);
        let options = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        match self.wait(self.stores[bucket].get_opts(&key, options)) {
            Ok(object) => Ok(Some(info(bucket, &object.meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error, &format!("{bucket}{key}"), &self.options)),
        }
    }

    /// A request takes tens of milliseconds, in which this many bytes could be read.
    fn coalesce_gap(&self) -> u64 {
        1 << 20
    }

    fn open(&self, _: &FileInfo) -> Result<Option<File>> {
        Ok(None)
    }

    fn read(&self, file: &FileInfo, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.wait(try_join_all(
            ranges
                .iter()
                .map(|range| self.read_range(file, range.clone())),
        ))
    }
}

/// Splits an address into `scheme://bucket/` and key.
fn split(address: &str) -> Result<(&str, &str)> {
    if scheme(address) == "hf" {
        return web::split_hub(address).ok_or_else(|| {
            let why =
                "expected one file: hf://datasets/OWNER/NAME/FILE, or NAME@REVISION".to_owned();
            Error::from(Problem::BadOption(why)).in_file(address)
        });
    }
    let scheme = address.find("://").map_or(0, |end| end + 3);
    let end = address[scheme..].find('/').map(|end| scheme + end + 1);
    let (bucket, key) = address.split_at(end.unwrap_or(address.len()));
    if bucket.len() <= scheme + 1 || !bucket.ends_with('/') {
        let why = "an address is scheme://bucket/prefix".to_owned();
        return Err(Error::from(Problem::BadOption(why)).in_file(address));
    }
    Ok((bucket, key))
}

/// The scheme of an address.
fn scheme(address: &str) -> &str {
    address.split("://").next().unwrap_or_default()
}

fn connect(bucket: &str, options: &StorageOptions) -> Result<Arc<dyn ObjectStore>, Problem> {
    let scheme = scheme(bucket);
    if web::is_web(scheme) {
        return web::connect(bucket, options);
    }
    let bad = |error: object_store::Error| {
        let why = options.hide_in(&one_line(&error));
        Problem::BadOption(format!("cannot open the object store: {why}"))
    };
    Ok(match scheme {
        "gs" => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(bucket);
            for (name, value) in options.iter() {
                builder = builder.with_config(key::<GoogleConfigKey>(scheme, name)?, value);
            }
            Arc::new(builder.build().map_err(bad)?)
        }
        "s3" | "s3a" => {
            let mut builder = AmazonS3Builder::from_env().with_url(bucket);
            for (name, value) in options.iter() {
                builder = builder.with_config(key::<AmazonS3ConfigKey>(scheme, name)?, value);
            }
            Arc::new(builder.build().map_err(bad)?)
        }
        _ => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(bucket);
            for (name, value) in options.iter() {
                builder = builder.with_config(key::<AzureConfigKey>(scheme, name)?, value);
            }
            Arc::new(builder.build().map_err(bad)?)
        }
    })
}

/// The option of an object store.
fn key<K: FromStr>(scheme: &str, name: &str) -> Result<K, Problem> {
    let example = match scheme {
        "gs" => "google_service_account",
        "s3" | "s3a" => "aws_access_key_id, aws_secret_access_key, aws_region, aws_endpoint",
        _ => "azure_storage_account_name, azure_storage_account_key",
    };
    name.to_ascii_lowercase().parse().map_err(|_| {
        let why = format!(
            "{scheme} has no storage option {name:?}; some of those that it has: {example}"
        );
        Problem::BadOption(why)
    })
}

fn info(bucket: &str, object: &ObjectMeta) -> FileInfo {
    FileInfo {
        name: format!("{bucket}{}", object.location),
        size: object.size,
        version: match &object.e_tag {
            // Azure has quotes around it in the answer to a read, and none in a list.
            Some(tag) => format!("\"{}\"", tag.trim_matches('"')),
            None => object.last_modified.to_rfc3339(),
        },
    }
}

fn failed(error: object_store::Error, address: &str, options: &StorageOptions) -> Error {
    let problem = match error {
        object_store::Error::NotFound { .. } => Problem::NotFound,
        object_store::Error::PermissionDenied { .. }
        | object_store::Error::Unauthenticated { .. } => Problem::PermissionDenied,
        other => Problem::Io(std::io::Error::other(options.hide_in(&one_line(&other)))),
    };
    Error::from(problem).in_file(address)
}

/// The first line of an error, without the markup that some stores append.
fn one_line(error: &object_store::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use object_store::{ObjectStoreExt, memory::InMemory};

    use super::*;

    fn objects(names: &[&str], root: &str) -> (Arc<InMemory>, ObjectStorage) {
        let store = Arc::new(InMemory::new());
        let bucket = "s3://bucket/".to_owned();
        let stores: BTreeMap<String, Arc<dyn ObjectStore>> =
            [(bucket.clone(), store.clone() as _)].into();
        let objects = ObjectStorage::over(
            stores,
            vec![(bucket, Path::from(root))],
            StorageOptions::default(),
        )
        .unwrap();
        for name in names {
            put(&objects, &store, name, "0123456789");
        }
        (store, objects)
    }

    fn put(objects: &ObjectStorage, store: &InMemory, name: &str, content: &'static str) {
        objects
            .wait(store.put(&Path::from(name), content.into()))
            .unwrap();
    }

    fn names(objects: &ObjectStorage) -> Vec<String> {
        objects
            .list()
            .unwrap()
            .into_iter()
            .map(|file| file.name)
            .collect()
    }

    #[test]
    fn data_below_a_prefix_is_listed() {
        let all = [
            "set/b.parquet",
            "set/a=1/c.parquet",
            "set/_SUCCESS",
            "set/_old/d.parquet",
            "set2/e.parquet",
        ];
        let (_, objects) = objects(&all, "set");
        assert_eq!(
            names(&objects),
            ["s3://bucket/set/a=1/c.parquet", "s3://bucket/set/b.parquet"]
        );
    }

    #[test]
    fn an_address_may_be_one_object_or_nothing() {
        let (_, one) = objects(&["set/b.parquet"], "set/b.parquet");
        assert_eq!(names(&one), ["s3://bucket/set/b.parquet"]);
        let (_, none) = objects(&["set/b.parquet"], "other");
        let error = none.list().unwrap_err();
        assert!(matches!(error.problem(), Problem::NotFound), "{error}");
        assert!(
            error.to_string().starts_with("s3://bucket/other: "),
            "{error}"
        );
    }

    #[test]
    fn ranges_are_read_as_long_as_the_object_is_the_same() {
        let (store, objects) = objects(&["x"], "x");
        let file = objects.list().unwrap().remove(0);
        let ranges = [2..4, 9..10];
        assert_eq!(objects.read(&file, &ranges).unwrap(), ["23", "9"]);
        put(&objects, &store, "x", "9876543210");
        let error = objects.read(&file, &ranges).unwrap_err();
        assert!(
            matches!(error.problem(), Problem::Changed { .. }),
            "{error}"
        );
        objects.wait(store.delete(&Path::from("x"))).unwrap();
        let error = objects.read(&file, &ranges).unwrap_err();
        assert!(matches!(error.problem(), Problem::NotFound), "{error}");
        assert_eq!(error.location().file.as_deref(), Some("s3://bucket/x"));
    }

    #[test]
    fn a_version_is_the_same_with_and_without_quotes() {
        let (_, objects) = objects(&["x"], "x");
        let known = objects.wait(objects.stores["s3://bucket/"].head(&Path::from("x")));
        let mut object = known.unwrap();
        let version = |object: &ObjectMeta| info("s3://bucket/", object).version;
        for (tag, expected) in [("0x1", "\"0x1\""), ("\"0x1\"", "\"0x1\"")] {
            object.e_tag = Some(tag.to_owned());
            assert_eq!(version(&object), expected);
        }
    }

    #[test]
    fn it_may_be_called_from_within_a_runtime() {
        let (_, objects) = objects(&["x"], "x");
        let other = Builder::new_current_thread().build().unwrap();
        assert_eq!(other.block_on(async { names(&objects) }), ["s3://bucket/x"]);
    }

    #[test]
    fn addresses_need_a_bucket() {
        assert_eq!(split("s3://bucket/a/b").unwrap(), ("s3://bucket/", "a/b"));
        assert_eq!(split("gs://bucket/").unwrap(), ("gs://bucket/", ""));
        for bad in ["s3://", "s3:///a", "s3://bucket"] {
            let error = split(bad).unwrap_err().to_string();
            assert!(
                error.ends_with("an address is scheme://bucket/prefix"),
                "{error}"
            );
        }
    }

    #[test]
    fn options_are_those_of_the_store_and_secrets_stay_secret() {
        let open = |address: &str, options: &[(&str, &str)]| {
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            ObjectStorage::new(&[address.to_owned()], options.collect())
        };
        let key = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("secret_access_key", "hush"),
            ("region", "x"),
        ];
        let storage = open("s3://bucket/set", &key).unwrap();
        assert!(!format!("{:?}", storage.options).contains("hush"));
        let account = [
            ("account_name", "me"),
            ("account_key", "aHVzaA=="),
            ("use_emulator", "true"),
        ];
        for address in [
            "az://box/set",
            "abfs://box/set",
            "abfss://box@me.dfs.core.windows.net/set",
        ] {
            open(address, &account).unwrap();
        }
        let error = open("s3://bucket/set", &[("secret", "hush")])
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("s3 has no storage option \"secret\"; some of those"),
            "{error}"
        );
        let wrong = [("google_service_account_key", "{\"private_key\": \"hush\"}")];
        let error = open("gs://bucket/set", &wrong).unwrap_err().to_string();
        assert!(error.contains("cannot open the object store"), "{error}");
        assert!(!error.contains("hush"), "{error}");
        let wrong = [("account_name", "me"), ("account_key", "hush!")];
        let error = open("az://box/set", &wrong).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}
