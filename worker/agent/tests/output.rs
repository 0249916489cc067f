//! The output of workers: no line is lost that can be kept, and no worker blocks for ever.

mod common;

use common::{Agent, Driver, process, shell};
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
            assert!(text.ends_with('\n'));
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
async fn without_a_reader_lines_are_dropped_and_counted() {
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
    let text = lines.rest().await;
    let mut dropped = 0;
    let mut got = 0;
    for line in text.lines() {
        match line.strip_prefix("[elasticrun] ") {
            Some(note) => {
                dropped += note
                    .strip_suffix(" lines dropped")
                    .unwrap()
                    .parse::<u32>()
                    .unwrap()
            }
            None => got += 1,
        }
    }
    assert!(dropped > 0);
    assert_eq!(got + dropped, 5_000_001);
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
async fn bytes_that_are_no_text_do_not_hurt() {
    let driver = Driver::new(shell("head -c 300000 /dev/urandom; echo; echo after")).await;
    let (_agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    lines.until("after\n").await;
}
