//! Users of etcd.

use crate::support::{cluster, read, write};
use elasticrun_etcd::{Client, Code, Error, Options, User};
use elasticrun_etcd_tests::Cluster;
use serde_json::json;

/// Adds the user `root`, and wants users from then on.
fn protect(cluster: &Cluster) {
    let post = |path, body| cluster.post(0, path, "", &body).expect("etcd is well");
    post(
        "auth/user/add",
        json!({ "name": "root", "password": "right" }),
    );
    post("auth/role/add", json!({ "name": "root" }));
    post("auth/user/grant", json!({ "user": "root", "role": "root" }));
    post("auth/enable", json!({}));
}

fn client(cluster: &Cluster, name: &str, password: &str) -> Client {
    let mut options = Options::new(cluster.endpoints());
    options.user = Some(User {
        name: name.into(),
        password: password.to_owned().into(),
    });
    Client::new(&options).expect("no password in clear")
}

#[tokio::test]
async fn only_the_right_user_reads_and_writes() {
    let cluster = cluster!(3);
    protect(&cluster);
    let root = client(&cluster, "root", "right");
    write(&root, "a", "1").await.unwrap();
    for (name, password) in [("root", "wrong"), ("nobody", "right"), ("", "")] {
        let error = read(&client(&cluster, name, password), "a")
            .await
            .unwrap_err();
        assert!(!error.is_temporary(), "{error}");
        assert!(
            matches!(
                error,
                Error::Etcd {
                    code: Code::INVALID_ARGUMENT,
                    ..
                }
            ),
            "{error}"
        );
        let line = error.to_string();
        assert!(!line.contains('\n') && line.len() < 200, "{line}");
    }
    let stranger = Client::new(&Options::new(cluster.endpoints())).expect("no password in clear");
    let error = write(&stranger, "a", "2").await.unwrap_err();
    assert!(
        !error.is_temporary() && !error.may_have_happened(),
        "{error}"
    );
    assert_eq!(read(&root, "a").await.unwrap().unwrap().value, b"1");
}

#[tokio::test]
async fn a_user_without_a_right_is_refused_and_a_changed_user_logs_in_again() {
    let cluster = cluster!(1);
    protect(&cluster);
    let root = client(&cluster, "root", "right");
    read(&root, "a").await.unwrap();
    let login = json!({ "name": "root", "password": "right" });
    let answer = cluster.post(0, "auth/authenticate", "", &login).unwrap();
    let token = answer["token"].as_str().expect("a token").to_owned();
    // Each change of users makes the tokens of before stale.
    let user = json!({ "name": "guest", "password": "g" });
    cluster.post(0, "auth/user/add", &token, &user).unwrap();
    write(&root, "a", "1").await.unwrap();
    let guest = client(&cluster, "guest", "g");
    let error = read(&guest, "a").await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Etcd {
                code: Code::PERMISSION_DENIED,
                ..
            }
        ),
        "{error}"
    );
}
