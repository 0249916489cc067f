//! The life cycle of workers under one agent: start, join, train, die, end.

mod common;

use common::{Driver, process, shell, worker};
use elasticrun_protocol::{AgentCommand, AgentReport, Round, control::Exit};

#[tokio::test]
async fn a_command_runs_and_its_exit_is_reported_after_its_lines() {
    let command = "echo out $GIVEN $RANK $HOROVOD_SIZE; echo err >&2; exit 3";
    let driver = Driver::new(shell(command)).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    control.spawn(0, 1).await;
    let Some(AgentReport::Exited {
        process: ended,
        exit,
        tail,
        ..
    }) = control.report().await
    else {
        panic!("no exit");
    };
    assert_eq!((ended, exit), (process(0, 1), Exit::Code(3)));
    let mut tail = tail;
    tail.sort();
    assert_eq!(tail, ["err", "out by the driver 0 1"]);
    control.command(AgentCommand::Shutdown).await;
    let (last, (text, _)) = tokio::join!(control.report(), lines.rest());
    assert_eq!(last, None);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("out by the driver 0 1\n"), "{text}");
    let (status, stderr) = agent.end().await;
    assert!(status.success(), "{stderr}");
    assert!(stderr.contains("ended: ShutDown"), "{stderr}");
}

#[tokio::test]
async fn two_workers_train_and_one_is_killed() {
    let words = [
        "attach",
        "join",
        "start",
        "commit=1000",
        "boundary",
        "abort",
        "join",
        "start",
        "finish",
    ];
    let driver = Driver::new(worker(&words)).await;
    let (agent, mut control, mut lines) = driver.with_agent().await;
    let members = [process(0, 1), process(1, 1)];
    for slot in 0..2 {
        control.spawn_of(slot, 1, 2).await;
    }
    control.all_wait(2).await;
    let ready = control.start(1, &members, None, None).await;
    let AgentReport::Ready {
        round,
        members: held,
        kept,
        free_port,
    } = ready
    else {
        panic!("{ready:?}");
    };
    assert_eq!((round, held.len(), kept.len()), (Round(1), 2, 0));
    assert!(free_port > 0 && held.iter().all(|held| held.data_port == 9));
    let mut text = lines.until("committed").await;
    while text.matches("committed 1.1.1").count() < 2 {
        text += &lines.until("committed").await;
    }
    assert!(
        text.contains("start round=1 rank=0 size=2 local_index=0 region=true keeper=false"),
        "{text}"
    );
    assert!(
        text.contains("start round=1 rank=1 size=2 local_index=1 region=true keeper=false"),
        "{text}"
    );
    let victim = common::processes_of_run(&driver.run_id)
        .into_iter()
        .find(|pid| {
            let environ = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
            environ.contains("LOCAL_RANK=0\0")
        })
        .unwrap();
    common::kill(victim, libc::SIGKILL);
    let lost = control.report().await.unwrap();
    assert_eq!(
        lost,
        AgentReport::WorkerLost {
            process: process(0, 1),
            silent: false
        }
    );
    let Some(AgentReport::Exited {
        process: ended,
        exit,
        ..
    }) = control.report().await
    else {
        panic!("no exit");
    };
    assert_eq!((ended, exit), (process(0, 1), Exit::Signal(libc::SIGKILL)));
    // The agent has told the survivor, and the commit of the dead worker still exists.
    lines.until("abort 1").await;
    let base = elasticrun_protocol::CommitId {
        epoch: common::EPOCH,
        round: Round(1),
        count: 1,
    };
    let ready = control
        .start(2, &[process(1, 1)], Some(base), Some(process(0, 1)))
        .await;
    let AgentReport::Ready {
        members: held,
        kept,
        ..
    } = ready
    else {
        panic!("{ready:?}");
    };
    assert_eq!(held[0].commit, Some(base));
    assert_eq!(kept[0].process, process(0, 1));
    assert_eq!(kept[0].commits, [base]);
    lines
        .until("start round=2 rank=0 size=1 local_index=0 region=false keeper=true")
        .await;
    let finished = control.report().await.unwrap();
    assert_eq!(
        finished,
        AgentReport::Finished {
            round: Round(2),
            workers: vec![process(1, 1)]
        }
    );
    let Some(AgentReport::Exited { exit, .. }) = control.report().await else {
        panic!("no exit");
    };
    assert_eq!(exit, Exit::Code(0));
    control.command(AgentCommand::Shutdown).await;
    assert_eq!(control.report().await, None);
    assert!(agent.end().await.0.success());
    assert!(common::processes_of_run(&driver.run_id).is_empty());
}
