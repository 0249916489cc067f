//! Store requests: their workers, their answers, and the loss of a worker or of the driver.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use common::{Driver, Peer, SOON, kill, process, processes_of_run, shell, worker};
use elasticrun_protocol::{
    HostId, Process,
    opening::Purpose,
    store::{Answer, Blob, FromClient, FromHost, Op, StoreOf, ToHost, Value},
};

/// The agent's connection for store requests, which the first request of a worker opens.
struct Store(Peer);

impl Store {
    async fn accept(driver: &Driver) -> Self {
        let mut peer = loop {
            let (purpose, peer) = driver.accept().await.unwrap();
            if purpose == Purpose::Store {
                break peer;
            }
        };
        let hello: StoreOf = peer.read().await.unwrap();
        let host = HostId::new("localhost");
        // The instance of the setup.
        let instance = driver.setup.instance;
        assert_eq!(hello, StoreOf { host, instance });
        Self(peer)
    }

    async fn next(&mut self) -> (Process, FromClient) {
        let FromHost { process, message } = self.0.read().await.expect("the agent lives");
        (process, message)
    }

    /// The next request, which must be a get: its process, its number, its key.
    async fn next_get(&mut self) -> (Process, u64, String) {
        match self.next().await {
            (process, FromClient::Ask(request)) => match request.op {
                Op::Get { key } => (process, request.number, key),
                other => panic!("expected a get, got {other:?}"),
            },
            other => panic!("expected a request, got {other:?}"),
        }
    }

    async fn answer(&mut self, process: Process, number: u64, value: &str) {
        let result = Ok(Value::Bytes(Blob(value.into())));
        let answer = Answer { number, result };
        self.0.write(&ToHost { process, answer }).await;
    }
}

#[tokio::test]
async fn answers_find_their_worker_in_any_order() {
    let words = [
        "attach", "open", "ask=a", "ask=b", "answer", "answer", "hang",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    let one = process(0, 1);
    assert_eq!(store.next_get().await, (one, 1, "a".into()));
    assert_eq!(store.next_get().await, (one, 2, "b".into()));
    control.spawn(1, 1).await;
    let two = process(1, 1);
    assert_eq!(store.next_get().await, (two, 1, "a".into()));
    assert_eq!(store.next_get().await, (two, 2, "b".into()));
    store.answer(two, 1, "to two").await;
    lines.until(r#"answer 1 Bytes(b"to two")"#).await;
    store.answer(one, 2, "the later").await;
    store.answer(one, 1, "the earlier").await;
    let text = lines.until("earlier").await;
    assert!(
        text.contains("answer 2 Bytes(b\"the later\")\nanswer 1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_killed_worker_is_forgotten() {
    let driver = Driver::new(worker(&["attach", "open", "ask=a", "join", "hang"])).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    store.next_get().await;
    control.all_wait(1).await;
    kill(processes_of_run(&driver.run_id)[0], libc::SIGKILL);
    assert_eq!(store.next().await, (process(0, 1), FromClient::Left));
}

#[tokio::test]
async fn a_worker_that_a_child_outlives_is_forgotten() {
    // The child may hold its socket.
    let words = [
        "attach", "open", "ask=a", "ask=b", "answer", "child", "exit=3",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, _lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    store.next_get().await;
    store.next_get().await;
    // The worker ends only now: the agent forwards no request of a process that is gone before it is read.
    store.answer(process(0, 1), 1, "x").await;
    assert_eq!(store.next().await, (process(0, 1), FromClient::Left));
}

#[tokio::test]
async fn requests_that_change_nothing_are_repeated_when_their_connection_is_cut() {
    let words = [
        "attach", "open", "ask=a", "answer", "ask=b", "answer", "hang",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    store.next_get().await;
    drop(store);
    let mut store = Store::accept(&driver).await;
    assert_eq!(store.next_get().await, (process(0, 1), 1, "a".into()));
    store.answer(process(0, 1), 1, "x").await;
    lines.until("answer 1 Bytes").await;
    assert_eq!(store.next_get().await, (process(0, 1), 2, "b".into()));
    store.answer(process(0, 1), 2, "x").await;
    lines.until("answer 2 Bytes").await;
}

#[tokio::test]
async fn a_push_or_pop_that_may_have_taken_effect_is_not_repeated() {
    let words = [
        "attach", "open", "push=q", "pop=q", "ask=a", "answer", "answer", "answer", "hang",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    for _ in 0..3 {
        store.next().await;
    }
    drop(store);
    let lost = "the store of the job cannot be reached: the connection to it ended";
    let text = lines.until("answer 2").await;
    assert!(text.contains(&format!("answer 1 {lost}")), "{text}");
    assert!(text.contains(&format!("answer 2 {lost}")), "{text}");
    let mut store = Store::accept(&driver).await;
    assert_eq!(store.next_get().await, (process(0, 1), 3, "a".into()));
    store.answer(process(0, 1), 3, "x").await;
    lines.until("answer 3 Bytes").await;
}

#[tokio::test]
async fn requests_wait_for_the_return_to_the_driver() {
    let words = ["attach", "open", "ask=a", "answer", "print=done", "hang"];
    let mut driver = Driver::new(worker(&words)).await;
    driver.setup.orphan_timeout = SOON;
    let (_agent, mut control, lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut store = Store::accept(&driver).await;
    store.next_get().await;
    drop((control, store, lines));
    driver.setup.adopted = true;
    driver.setup.instance = 2;
    let control = driver.register().await;
    let adoption = control.register.adoption.as_ref().expect("it has a worker");
    assert_eq!(adoption.workers.len(), 1);
    let mut store = Store::accept(&driver).await;
    assert_eq!(store.next_get().await, (process(0, 1), 1, "a".into()));
}

#[tokio::test]
async fn only_the_process_that_attached_may_ask() {
    // The first process has not attached; the second one has.
    let inner = worker(&["attach", "open", "print=first", "hang"]).join(" ");
    let outer = worker(&["open", "exit=0"]).join(" ");
    let script = format!("{outer}; {inner} & sleep 1000 & wait");
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let text = lines.until("first").await;
    let refused = r#"Refused { why: "it has not attached as this worker" }"#;
    assert!(
        text.contains(&format!("{refused}\nopened\nfirst")),
        "{text}"
    );
}

#[tokio::test]
async fn a_child_of_a_worker_may_not_send_its_requests() {
    let inner = worker(&["attach", "open", "print=first", "hang"]).join(" ");
    let other = worker(&["open", "exit=0"]).join(" ");
    // The child starts when the worker has attached: both print to the same pipe.
    let script = format!(
        "{{ {inner}; }} | {{ while read line; do echo $line; [ $line = first ] && {other}; done; }}"
    );
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    lines
        .until(r#"Refused { why: "it has not attached as this worker" }"#)
        .await;
}
