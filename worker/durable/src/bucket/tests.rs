use std::sync::atomic::{AtomicUsize, Ordering};

use object_store::memory::InMemory;

use super::*;

/// A bucket in memory.
fn bucket() -> (Bucket, Arc<InMemory>) {
    let store = Arc::new(InMemory::new());
    let prefix = Path::from("a/b");
    let bucket = Bucket::over(store.clone(), prefix, "s3://c/a/b").unwrap();
    (bucket, store)
}

fn read(store: &Bucket, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = store.open(name).unwrap()?;
    assert_eq!(file.bytes.read_to_end(&mut bytes).unwrap() as u64, file.len);
    Some(bytes)
}

fn write(store: &Bucket, directory: &str, name: &str, bytes: &[u8]) -> Result<(), Error> {
    store.write(directory, &mut |file| {
        file.write_all(bytes)?;
        Ok(Some(name.to_owned()))
    })
}

#[test]
fn objects_are_written_listed_and_removed() {
    let (store, _) = bucket();
    store.check_writable().unwrap();
    assert_eq!(store.runs().unwrap(), Vec::<String>::new());
    write(&store, "r/2", "data", b"bytes").unwrap();
    write(&store, "r/10", "data", b"more").unwrap();
    store.publish("r/2/done", b"no").unwrap();
    store.publish("r/2/done", b"yes").unwrap();
    assert_eq!(store.list("r").unwrap(), ["10", "2"]);
    assert_eq!(store.list("r/2").unwrap(), ["data", "done"]);
    assert_eq!(read(&store, "r/2/data").unwrap(), b"bytes");
    assert_eq!(read(&store, "r/2/done").unwrap(), b"yes");
    assert_eq!(read(&store, "r/2/other"), None);
    store.remove("r/2/done").unwrap();
    store.remove("r/2/done").unwrap();
    store.remove_directory("r/2").unwrap();
    store.remove_directory("r/2").unwrap();
    assert_eq!(store.list("r").unwrap(), ["10"]);
}

#[test]
fn runs_are_those_below_the_prefix_the_last_changed_first() {
    let (store, memory) = bucket();
    let put = |key: &str| {
        let key = Path::from(key);
        let put = memory.put(&key, PutPayload::from_static(b"x"));
        store.wait(put).unwrap();
    };
    for key in [
        "a/b/old/1.1.1/x",
        "a/b/new/1.1.1/x",
        "a/b/notes",
        "a/bc/other/1.1.1/x",
    ] {
        put(key);
    }
    assert_eq!(store.runs().unwrap(), ["new", "old"]);
    put("a/b/old/1.1.2/x");
    assert_eq!(store.runs().unwrap(), ["old", "new"]);
}

#[test]
fn a_large_object_is_written_and_read_in_parts() {
    let (store, _) = bucket();
    let bytes: Vec<u8> = (0..(2 * PART as usize + 5))
        .map(|i| (i % 251) as u8)
        .collect();
    store
        .write("r/1", &mut |file| {
            // Pieces that do not divide a part.
            for piece in bytes.chunks(1_000_003) {
                file.write_all(piece)?;
            }
            Ok(Some("data".to_owned()))
        })
        .unwrap();
    assert!(read(&store, "r/1/data").unwrap() == bytes);
}

#[test]
fn an_upload_that_fails_or_is_discarded_leaves_nothing() {
    let (store, _) = bucket();
    let large = vec![1; PART as usize + 1];
    let calls = AtomicUsize::new(0);
    // The first call counts the bytes, the second one sends them.
    let mut fails_later = |file: &mut dyn Write| {
        file.write_all(&large)?;
        match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Ok(Some("data".to_owned())),
            _ => Err(io::Error::other("overwritten")),
        }
    };
    let error = store.write("r/1", &mut fails_later).unwrap_err();
    let expected = "cannot write s3://c/a/b/r/1: overwritten";
    assert_eq!(error.to_string(), expected);
    let mut is_discarded = |file: &mut dyn Write| {
        file.write_all(&large)?;
        Ok((calls.fetch_add(1, Ordering::Relaxed) == 2).then(|| "data".to_owned()))
    };
    store.write("r/2", &mut is_discarded).unwrap();
    let mut changes = |file: &mut dyn Write| {
        file.write_all(&large)?;
        Ok(Some(calls.fetch_add(1, Ordering::Relaxed).to_string()))
    };
    store.write("r/3", &mut changes).unwrap_err();
    assert_eq!(store.list("r").unwrap(), Vec::<String>::new());
}

#[test]
fn nothing_is_published_in_a_directory_that_was_removed() {
    let (store, _) = bucket();
    write(&store, "r/1", "data", b"bytes").unwrap();
    store.remove_directory("r/1").unwrap();
    store.publish("r/1/done", b"yes").unwrap_err();
    assert_eq!(store.list("r").unwrap(), Vec::<String>::new());
}

#[test]
fn places_that_are_no_buckets_are_refused() {
    let why = |place: &str| match Bucket::open(place, &Access::default()) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{place} is refused"),
    };
    let expected = "ftp://a/b is not a durable store: ftp:// is not supported; give a directory, \
                    s3://BUCKET/PREFIX or gs://BUCKET/PREFIX";
    assert_eq!(why("ftp://a/b"), expected);
}

/// Connects with these variables and credentials. The agent's own variables count for the region alone then.
fn connects(place: &str, variables: &[(&str, &str)]) -> Result<(), String> {
    let credentials = [
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("GOOGLE_BEARER_TOKEN", "token"),
    ];
    let variables = variables.iter().chain(&credentials);
    let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    connect::connect(place, &Access::new(&variables.collect())).map(drop)
}

#[test]
fn an_endpoint_without_tls_is_named_unless_it_is_allowed() {
    for (place, name, allows) in [
        ("s3://b/p", "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"),
        ("s3://b/p", "AWS_ENDPOINT_URL_S3", "AWS_ALLOW_HTTP"),
        ("gs://b/p", "GOOGLE_BASE_URL", "GOOGLE_ALLOW_HTTP"),
    ] {
        let plain = (name, "http://10.0.0.1:9000");
        let refused = format!("{name} is an address without TLS; {allows}=true allows that");
        assert_eq!(connects(place, &[plain]), Err(refused.clone()));
        assert_eq!(connects(place, &[plain, (allows, "False")]), Err(refused));
        assert_eq!(connects(place, &[plain, (allows, "true")]), Ok(()));
        assert_eq!(connects(place, &[(name, "https://10.0.0.1:9000")]), Ok(()));
    }
}

/// As on Kubernetes and on instances of EC2.
#[test]
fn services_that_give_out_credentials_need_no_tls() {
    for name in [
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_METADATA_ENDPOINT",
        "AWS_EC2_METADATA_SERVICE_ENDPOINT",
    ] {
        let address = "http://169.254.170.23/v1/credentials";
        assert_eq!(connects("s3://b/p", &[(name, address)]), Ok(()), "{name}");
    }
}

#[test]
fn values_of_variables_are_not_printed() {
    let variables = [("AWS_SECRET_ACCESS_KEY", "hush"), ("PATH", "/bin")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let access = Access::new(&variables.into());
    assert_eq!(format!("{access:?}"), r#"["AWS_SECRET_ACCESS_KEY"]"#);
}
