//! The output of workers: no byte is lost that can be kept, and no worker blocks for ever.

mod common;

use common::{Agent, Driver, eventually, process, processes_of_run, shell};
use elasticrun_protocol::{
    AgentCommand, AgentReport,
    control::{Exit, Output},
};

#[tokio::test]
async fn all_of_ten_megabytes_comes_in_order() {
    let driver = Driver::new(shell("seq 1 1500000; echo done >&2")).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    control.answer_beat().await;
    let reader = tokio::spawn(async move {
        let mut stdout = String::new();
        while let Some(Output { stderr, text, .. }) = lines.next().await {
            if !stderr {
                stdout += &text;
            }
        }
        stdout
    });
    let Some(AgentReport::Exited { exit, tail, .. }) = control.report().await else {
        panic!("no exit");
    };
    assert_eq!(exit, Exit::Code(0));
    assert!(
        tail.contains(&"1500000".to_owned()) && tail.contains(&"done".to_owned()),
        "{tail:?}"
    );
    control.command(AgentCommand::Shutdown).await;
    assert_eq!(control.report().await, None);
    let stdout = reader.await.unwrap();
    assert!(stdout.len() > 10_000_000);
    assert!(
        stdout
            .lines()
            .map(|line| line.parse::<u32>().unwrap())
            .eq(1..=1_500_000_u32)
    );
    assert!(agent.end().await.0.success());
}

#[tokio::test]
async fn without_a_reader_bytes_are_dropped_and_counted() {
    let driver = Driver::new(shell("seq 1 5000000; echo the end")).await;
    let agent = Agent::start(&driver.launch(), &[("ELASTICRUN_TEST_PATIENCE_MS", "200")]);
    let (mut control, mut lines) = driver.welcome().await;
    control.spawn(0, 1).await;
    // The driver does not read the lines. The worker ends nevertheless, and the report has its last lines.
    let Some(AgentReport::Exited { exit, tail, .. }) = control.report().await else {
        panic!("no exit");
    };
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(tail.last().map(String::as_str), Some("the end"));
    let rss = std::fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
    let rss = rss
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let rss: u64 = rss.split_whitespace().next().unwrap().parse().unwrap();
    assert!(rss < 40_000, "{rss} kB");
    control.command(AgentCommand::Shutdown).await;
    let (got, dropped) = lines.rest().await;
    assert!(dropped > 0);
    let length: u64 = (1..=5_000_000_u64)
        .map(|number| number.to_string().len() as u64 + 1)
        .sum();
    assert_eq!(
        got.len() as u64 + dropped,
        length + "the end\n".len() as u64
    );
    assert!(got.starts_with(b"1\n2\n3\n"));
}

#[tokio::test]
async fn the_driver_may_begin_to_read_after_the_end() {
    // As much as the queue of the agent holds, and more than the connection does.
    let driver = Driver::new(shell("head -c 4000000 /dev/zero; echo; echo the end >&2")).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let Some(AgentReport::Exited { process: ended, .. }) = control.report().await else {
        panic!("no exit");
    };
    assert_eq!(ended, process(0, 1));
    control.command(AgentCommand::Shutdown).await;
    eventually("all processes have ended", || {
        processes_of_run(&driver.run_id).is_empty()
    })
    .await;
    let (got, dropped) = lines.rest().await;
    assert_eq!((got.len(), dropped), (4_000_001 + "the end\n".len(), 0));
    assert!(agent.end().await.0.success());
}

#[tokio::test]
async fn an_agent_says_what_a_driver_that_does_not_read_lost() {
    let driver = Driver::new(shell("head -c 4000000 /dev/zero")).await;
    let agent = Agent::start(&driver.launch(), &[("ELASTICRUN_TEST_PATIENCE_MS", "200")]);
    let (mut control, lines) = driver.welcome().await;
    control.spawn(0, 1).await;
    let Some(AgentReport::Exited { .. }) = control.report().await else {
        panic!("no exit");
    };
    control.command(AgentCommand::Shutdown).await;
    let (status, log) = agent.end().await;
    assert!(status.success());
    assert!(
        log.contains("the driver does not take the last output") && log.contains("bytes="),
        "{log}"
    );
    drop(lines);
}

#[tokio::test]
async fn an_agent_whose_driver_is_gone_does_not_wait_with_last_words() {
    let script = "trap 'echo the end; exit' TERM; echo begun; while :; do sleep 0.01; done";
    let driver = Driver::new(shell(script)).await;
    let agent = Agent::start(
        &driver.launch(),
        &[("ELASTICRUN_TEST_PATIENCE_MS", "60000")],
    );
    let (mut control, mut lines) = driver.welcome().await;
    control.spawn(0, 1).await;
    lines.until("begun").await;
    let run_id = driver.run_id.clone();
    drop((control, lines, driver));
    let (status, log) = agent.end().await;
    assert!(status.success());
    assert!(log.contains("does not take the last output"), "{log}");
    assert!(processes_of_run(&run_id).is_empty());
}

#[tokio::test]
async fn a_line_without_an_end_comes_while_the_worker_waits() {
    let directory = tempfile::tempdir().unwrap();
    let seen = directory.path().join("seen").display().to_string();
    // The worker waits until the driver has seen each text.
    let wait = format!("until [ -e {seen} ]; do sleep 0.01; done; rm {seen}");
    let script = format!(
        "printf '\\rstep 1'; {wait}; printf '\\rstep 2'; {wait}; printf 'name? ' >&2; {wait}"
    );
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    for text in ["\rstep 1", "\rstep 2", "name? "] {
        assert_eq!(lines.until(text).await, text);
        std::fs::write(&seen, "").unwrap();
    }
    let Some(AgentReport::Exited { exit, tail, .. }) = control.report().await else {
        panic!("no exit");
    };
    assert_eq!(exit, Exit::Code(0));
    assert_eq!(tail, ["step 2", "name? "]);
}

#[tokio::test]
async fn the_last_lines_before_a_death_are_not_lost() {
    let script = "echo first; echo -n 'no end of line' >&2; kill -SEGV $$";
    let driver = Driver::new(shell(script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    for start in 1..20 {
        control.spawn(0, start).await;
        let Some(AgentReport::Exited {
            process: ended,
            exit,
            mut tail,
            ..
        }) = control.report().await
        else {
            panic!("no exit");
        };
        tail.sort();
        assert_eq!(
            (ended, exit),
            (process(0, start), Exit::Signal(libc::SIGSEGV))
        );
        assert_eq!(tail, ["first", "no end of line"]);
        let text = [lines.next().await.unwrap(), lines.next().await.unwrap()];
        assert!(
            text.iter()
                .any(|output| output.stderr && output.text == "no end of line")
        );
    }
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let script = format!("head -c 300000 /dev/urandom | tee {}", copy.display());
    let driver = Driver::new(shell(&script)).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let mut got = Vec::new();
    while got.len() < 300_000 {
        got.extend_from_slice(lines.next().await.unwrap().as_bytes());
    }
    assert!(got == std::fs::read(copy).unwrap(), "the bytes differ");
}
