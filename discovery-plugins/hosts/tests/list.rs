//! Host lists: accepted ones, errors, and properties over random text.

#![allow(clippy::unwrap_used)]

use elasticrun_hosts::{
    Host, HostState,
    list::{
        HostSpec, parse_followed_file, parse_host_list, parse_hostfile, parse_lines,
        without_final_dot,
    },
};
use proptest::prelude::*;

fn shown(hosts: &[HostSpec]) -> Vec<String> {
    hosts.iter().map(ToString::to_string).collect()
}

fn list(text: &str) -> Vec<String> {
    shown(&parse_host_list(text).unwrap())
}

fn refused(text: &str) -> String {
    parse_host_list(text).unwrap_err().to_string()
}

fn line_refused(text: impl AsRef<[u8]>) -> String {
    parse_lines(text).unwrap_err().to_string()
}

#[test]
fn a_list_keeps_its_order_and_its_slots() {
    assert_eq!(list("b:4,a"), ["b:4", "a"]);
    assert_eq!(
        list(" me@b.example.org:4 , 10.0.0.1:2"),
        ["me@b.example.org:4", "10.0.0.1:2"]
    );
    assert_eq!(
        list("localhost:2,127.0.0.1:2"),
        ["localhost:2", "127.0.0.1:2"]
    );
    assert_eq!(
        list("[::1]:4,root@[fe80:0::1%eth0]"),
        ["[::1]:4", "root@[fe80::1%eth0]"]
    );
    assert_eq!(list("a:1024"), ["a:1024"]);
}

#[test]
fn parts_of_a_host_are_parsed() {
    let hosts = parse_hostfile("me@[::1]:3 port=2222\n").unwrap();
    let expected = HostSpec {
        user: Some("me".into()),
        host: "::1".into(),
        port: Some(2222),
        slots: Some(3),
    };
    assert_eq!(hosts, [expected]);
    assert_eq!(hosts[0].id(), "[::1]:2222");
    assert_eq!(parse_host_list("[0::1]:3").unwrap()[0].id(), "::1");
}

#[test]
fn a_hostfile_takes_both_forms_comments_and_any_line_end() {
    let text =
        "\u{feff}# two forms\r\n\r\na slots=4\r\nb:2 # the old one\n\tc\tport=2222 slots=1  \n d";
    assert_eq!(
        shown(&parse_hostfile(text).unwrap()),
        ["a:4", "b:2", "c:1 port=2222", "d"]
    );
    assert_eq!(parse_lines("").unwrap(), []);
    assert_eq!(parse_lines("# nothing\n\n").unwrap(), []);
    assert_eq!(
        parse_hostfile("# nothing\n").unwrap_err().to_string(),
        "the list: names no host"
    );
}

#[test]
fn an_error_has_a_position_a_text_and_a_remedy() {
    assert_eq!(refused(""), "the list: names no host");
    assert_eq!(
        refused("a:4,b:0"),
        r#"host 2, "b:0": slots must be a number from 1 to 1024"#
    );
    for slots in [
        "a:",
        "a:x",
        "a:-1",
        "a:+1",
        "a:1025",
        "a:4294967297",
        "a: 4",
        "[::1]:x",
    ] {
        assert!(
            refused(slots).ends_with(": slots must be a number from 1 to 1024"),
            "{slots}"
        );
    }
    assert_eq!(
        refused("a,,b"),
        "host 2: a host is missing; allowed is host, host:slots or user@host:slots"
    );
    assert!(refused("a,").starts_with("host 2: a host is missing"));
    assert!(refused(":4").starts_with(r#"host 1, ":4": a host is missing"#));
    assert_eq!(
        refused("b,fe80::1:4"),
        r#"host 2, "fe80::1:4": an IPv6 address goes in brackets, as in [::1]:4"#
    );
    for host in [
        "4",
        "10.0.0.256",
        "a b",
        "-oProxyCommand=x",
        "a..b",
        "a/b",
        "[::1",
        "[::1]4",
        "[a]",
        "é",
    ] {
        assert!(
            refused(host).contains(": not a host; allowed is a name of letters"),
            "{host}"
        );
    }
    assert!(refused("-l@a").contains("not a user name"));
    assert!(refused("a@b@c").contains("not a user name"));
    assert_eq!(
        refused("a:1,b,A:2"),
        r#"host 3, "A:2": the host is named before, in host 1; name it once, with all of its slots"#
    );
    assert!(refused("[::1],[0:0::1]").contains("named before"));
    let long = refused(&"x".repeat(1000));
    assert!(long.len() < 250 && long.contains("xxx...\""), "{long}");
}

#[test]
fn a_line_is_refused_with_its_number() {
    assert_eq!(
        line_refused("a\n\nb:1025\n"),
        r#"line 3, "b:1025": slots must be a number from 1 to 1024"#
    );
    assert_eq!(
        line_refused(b"a\nb\xff\n"),
        "line 2, \"b\u{fffd}\": not UTF-8 text"
    );
    assert_eq!(
        line_refused("a\0b"),
        r#"line 1, "a\0b": holds a control character; allowed is plain text"#
    );
    assert_eq!(
        line_refused("a:1 slots=2"),
        r#"line 1, "a:1 slots=2": slots are given twice; allowed is host:4 or host slots=4"#
    );
    assert_eq!(
        line_refused("a max_slots=2"),
        r#"line 1, "a max_slots=2": unknown word after the host; allowed are slots=N and port=N"#
    );
    for port in ["a port=0", "a port=65536", "a port=x", "a port=1 port=2"] {
        assert!(
            line_refused(port).ends_with("port must be one number from 1 to 65535"),
            "{port}"
        );
    }
    assert!(line_refused("a\nb\na\n").contains("named before, in line 1"));
    assert_eq!(
        shown(&parse_lines("a port=1\na port=2\na").unwrap()),
        ["a port=1", "a port=2", "a"]
    );
}

#[test]
fn only_lists_that_change_may_name_hosts_with_0_slots() {
    let text = "a:4\nb:0\nc slots=0\n";
    let hosts = parse_lines(text).unwrap();
    assert_eq!(shown(&hosts), ["a:4", "b:0", "c:0"]);
    assert_eq!(parse_followed_file(text).unwrap(), hosts);
    assert!(parse_followed_file("# none\n").is_err());
    let states: Vec<_> = hosts
        .into_iter()
        .map(|host| Host::from(host).state)
        .collect();
    assert_eq!(
        states,
        [HostState::Ready, HostState::Pending, HostState::Pending]
    );
    let error = r#""b:0": slots must be a number from 1 to 1024"#;
    let of_file = parse_hostfile(text).unwrap_err().to_string();
    assert_eq!(of_file, format!("line 2, {error}"));
    assert_eq!(refused("a:4,b:0"), format!("host 2, {error}"));
    assert!("b:0".parse::<HostSpec>().is_err());
}

#[test]
fn a_complete_name_is_the_same_host_as_without_its_dot() {
    assert_eq!(list("me@a.example.org.:4,b."), ["me@a.example.org:4", "b"]);
    assert!(refused("a.b,A.b.").contains("named before, in host 1"));
    for host in [".", "a..", "10.0.0.1.", "4."] {
        assert!(refused(host).contains(": not a host"), "{host}");
    }
    for (text, name) in [
        ("a.b.", "a.b"),
        ("10.0.0.1", "10.0.0.1"),
        ("ns/b.", "ns/b."),
        ("", ""),
    ] {
        assert_eq!(without_final_dot(text), name);
    }
}

fn host() -> impl Strategy<Value = HostSpec> {
    let name = prop_oneof![
        "[a-z][a-z0-9_-]{0,8}(\\.[a-z][a-z0-9]{0,4}){0,2}",
        any::<std::net::Ipv4Addr>().prop_map(|address| address.to_string()),
        any::<std::net::Ipv6Addr>().prop_map(|address| address.to_string()),
    ];
    let user = proptest::option::of("[a-z0-9_.+][a-z0-9_.+-]{0,8}");
    let (port, slots) = (
        proptest::option::of(1u16..),
        proptest::option::of(1u32..=1024),
    );
    (user, name, port, slots).prop_map(|(user, host, port, slots)| HostSpec {
        user,
        host,
        port,
        slots,
    })
}

fn hosts() -> impl Strategy<Value = Vec<HostSpec>> {
    proptest::collection::btree_map(host().prop_map(|host| host.id()), host(), 0..8).prop_map(
        |map| {
            let mut seen = std::collections::BTreeSet::new();
            map.into_values()
                .filter(|host| seen.insert(host.id()))
                .collect()
        },
    )
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed_again(hosts in hosts()) {
        let text: String = hosts.iter().map(|host| format!("{host}\r\n")).collect();
        prop_assert_eq!(parse_lines(&text).unwrap(), hosts.clone());
        let mut hosts = hosts;
        hosts.iter_mut().for_each(|host| host.port = None);
        let mut seen = std::collections::BTreeSet::new();
        hosts.retain(|host| seen.insert(host.id()));
        if !hosts.is_empty() {
            prop_assert_eq!(parse_host_list(&shown(&hosts).join(",")).unwrap(), hosts);
        }
    }

    #[test]
    fn any_bytes_are_taken_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_lines(&bytes);
        let _ = parse_host_list(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn near_misses_are_taken_or_refused(text in "[a-b@:\\[\\]=#%., \n\r\t0-9-]{0,40}") {
        for hosts in [parse_lines(&text), parse_host_list(&text)].into_iter().flatten() {
            let mut ids: Vec<_> = hosts.iter().map(HostSpec::id).collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), hosts.len());
            for host in hosts {
                prop_assert!(!host.host.starts_with('-') && !host.host.is_empty());
                prop_assert!(host.slots.is_none_or(|slots| (1..=1024).contains(&slots)));
            }
        }
    }
}
