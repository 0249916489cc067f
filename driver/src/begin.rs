//! How a driver begins: with a new run, or with the run of a driver that has ended.

use std::{collections::BTreeMap, env, net::SocketAddr, time::Duration};

use anyhow::Context as _;
use elasticrun_core::journal::Saved;
use elasticrun_protocol::DriverEpoch;
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};

use crate::{
    config::{self, Settings, Words},
    control_port::ControlPort,
    environment, join_token,
    join_tokens::JoinTokens,
    journal::{self, Configuration, Entries, Epoch, EtcdRun, Journal, Notice},
    parameter_servers,
    seed::seed,
    trust::Trust,
};

/// How long the start of a job waits for the disk of its journal.
const CREATE_TIMEOUT: Duration = Duration::from_secs(10);

/// What a driver begins with.
#[derive(Debug)]
pub enum Begin {
    /// A new run.
    New {
        /// Its settings.
        settings: Box<Settings>,
        /// The same settings for the journal.
        words: Words,
        /// Its id. `None`: a random one.
        run_id: Option<String>,
    },
    /// A run whose driver has ended, and which has no outcome yet.
    Resume(Box<Resume>),
}

/// A run whose driver has ended.
#[derive(Debug)]
pub struct Resume {
    /// The id of the run.
    pub run_id: String,
    /// All entries of its journal.
    pub saved: Entries,
    /// What the run was started with.
    pub config: Configuration,
    /// The settings of [`Resume::config`].
    pub settings: Settings,
    /// The trust of the run.
    pub trust: Trust,
    /// The epoch of the driver that has ended.
    pub epoch: DriverEpoch,
    /// The journal, which this driver holds now.
    pub journal: Journal,
    /// What it reports.
    pub notices: mpsc::Receiver<Notice>,
    /// The port of a driver that has waited. Agents have been told of it.
    pub(crate) port: Option<ControlPort>,
}

/// A random id of a run.
///
/// # Errors
/// The system has no randomness.
pub fn new_run_id() -> anyhow::Result<String> {
    Ok(format!("{:08x}", seed()? as u32))
}

/// The journal of a run if it has one, and what is to be reported of it.
pub(crate) type Opened = (Option<Journal>, Option<mpsc::Receiver<Notice>>);

/// What a driver is, and what it tells agents.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) run_id: String,
    pub(crate) epoch: DriverEpoch,
    pub(crate) trust: Trust,
    /// The user has not been told yet how hosts join.
    pub(crate) is_new: bool,
    /// Where the driver must listen, since agents know the address.
    pub(crate) listen: Option<SocketAddr>,
    /// Variables for the workers.
    pub(crate) variables: BTreeMap<String, String>,
    /// How many variables of this environment are not among them.
    pub(crate) withheld: usize,
    /// The working directory. `None` if it is not UTF-8.
    pub(crate) directory: Option<String>,
}

impl Begin {
    /// The settings of the run.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        match self {
            Self::New { settings, .. } => settings,
            Self::Resume(resume) => &resume.settings,
        }
    }

    /// The port that agents have been told of, if they have.
    pub(crate) fn take_port(&mut self) -> Option<ControlPort> {
        match self {
            Self::New { .. } => None,
            Self::Resume(resume) => resume.port.take(),
        }
    }

    /// The records of the earlier drivers. `None` for a new run.
    pub(crate) fn saved(&self) -> Option<Saved> {
        match self {
            Self::New { .. } => None,
            Self::Resume(resume) => Some(journal::saved(&resume.saved)),
        }
    }

    /// What the driver is. Only a driver of a new run decides it; a later one is what the journal says, in the next epoch.
    ///
    /// # Errors
    /// The join token is not usable, the system has no randomness, or the working directory is gone.
    pub(crate) fn identity(&self) -> anyhow::Result<Identity> {
        match self {
            Self::New {
                settings, run_id, ..
            } => {
                let run_id = match run_id {
                    Some(run_id) => run_id.clone(),
                    None => new_run_id()?,
                };
                let launch = &settings.launch;
                let tokens = match (&launch.join, launch.embedder_fd) {
                    (Some(join), _) => {
                        let token = join_token::open(join)?;
                        Some(JoinTokens::new(token, join.token_file.clone()))
                    }
                    (None, Some(_)) => Some(JoinTokens::new(join_token::unlimited()?, None)),
                    (None, None) => None,
                };
                let trust = Trust::new(&run_id, tokens)?;
                let mut sent = environment::sent(launch.worker_env, &launch.env);
                if let Some(servers) = &settings.parameter_servers {
                    let port = parameter_servers::free_port(settings)
                        .context("no port for the scheduler of the parameter servers")?;
                    let variables = parameter_servers::variables(servers, port, trust.secret());
                    sent.variables.extend(variables);
                }
                let directory = env::current_dir().context("the working directory is gone")?;
                Ok(Identity {
                    trust,
                    run_id,
                    epoch: DriverEpoch(1),
                    is_new: true,
                    listen: settings.launch.listen,
                    variables: sent.variables,
                    withheld: sent.withheld,
                    directory: directory.to_str().map(str::to_owned),
                })
            }
            Self::Resume(resume) => Ok(Identity {
                run_id: resume.run_id.clone(),
                epoch: (resume.journal.epoch()).unwrap_or(DriverEpoch(resume.epoch.0 + 1)),
                trust: resume.trust.clone(),
                is_new: false,
                listen: Some(resume.config.listen),
                variables: resume.config.env.clone(),
                withheld: 0,
                directory: resume.config.directory.clone(),
            }),
        }
    }

    /// The journal of the run, with the epoch of this driver, and the configuration of a new run. Both are durable when this
    /// returns, so call it before the port opens. Agents reach it at `endpoints`.
    ///
    /// # Errors
    /// The journal that the user has named cannot be used, or the epoch of a resumed run cannot be written.
    pub(crate) async fn journal(
        self,
        identity: &Identity,
        listen: SocketAddr,
        endpoints: Vec<String>,
    ) -> anyhow::Result<Opened> {
        let epoch = Epoch {
            epoch: identity.epoch,
            nonce: seed()?,
            endpoints: endpoints.clone(),
        };
        match self {
            Self::Resume(mut resume) => {
                let moved = resume.config.listen != listen;
                // A later driver on this machine listens where agents know this one.
                resume.config.listen = listen;
                let config = moved.then(|| resume.config.entry());
                let entries = [epoch.entry()].into_iter().chain(config);
                let answered = resume.journal.persist(entries);
                let written = async { answered.await?.map_err(anyhow::Error::msg) };
                in_time(CREATE_TIMEOUT, written).await?;
                Ok((Some(resume.journal), Some(resume.notices)))
            }
            Self::New {
                settings, words, ..
            } => {
                let configuration = Configuration::new(
                    words,
                    settings.command,
                    identity.directory.clone(),
                    identity.variables.clone(),
                    listen,
                    &identity.trust,
                );
                let entries = [configuration.entry(), epoch.entry()];
                let lease = config::lease_in_etcd(settings.timeouts.orphan);
                let place = (&settings.journal, lease, endpoints);
                let created = create(place, &identity.run_id, entries).await;
                match (created, settings.journal) {
                    (Ok(journal), _) => Ok(journal.unzip()),
                    (Err(error), config::Journal::File(_) | config::Journal::Etcd(_)) => {
                        Err(error.context("--journal"))
                    }
                    (Err(error), _) if settings.supervise => Err(error.context("--supervise")),
                    (Err(error), _) => {
                        let (notify, notices) = mpsc::channel(1);
                        // The channel has room for it.
                        let _ = notify.try_send(Notice::Failed(format!("{error:#}")));
                        Ok((None, Some(notices)))
                    }
                }
            }
        }
    }
}

/// Creates the journal of a new run with these entries.
async fn create(
    (place, lease, endpoints): (&config::Journal, Duration, Vec<String>),
    run_id: &str,
    entries: [journal::Entry; 2],
) -> anyhow::Result<Option<(Journal, mpsc::Receiver<Notice>)>> {
    let run = run_id.to_owned();
    // Not on this thread: neither the disk nor etcd may answer.
    let (shown, created) = match place {
        config::Journal::None => return Ok(None),
        config::Journal::Etcd(place) => {
            let (shown, place) = (place.to_string(), place.clone());
            let create =
                move || Journal::create_in_etcd(EtcdRun::new(&place, &run)?, lease, endpoints);
            (shown, spawn_blocking(create))
        }
        config::Journal::File(_) | config::Journal::InStateDirectory => {
            let path = match place {
                config::Journal::File(path) => Some(path.clone()),
                _ => journal::in_state_directory(run_id),
            };
            let path =
                path.context("neither XDG_STATE_HOME nor HOME is set to an absolute path")?;
            let shown = path.display().to_string();
            (shown, spawn_blocking(move || Journal::create(&path, &run)))
        }
    };
    let created = async {
        // The text has that of the cause.
        let created = (created.await?).map_err(|error| anyhow::Error::msg(error.to_string()))?;
        let answer = created.0.persist(entries).await?;
        // Without the configuration no driver could resume the run, and the journal is removed.
        answer.map_err(anyhow::Error::msg)?;
        Ok(created)
    };
    let created = in_time(CREATE_TIMEOUT, created);
    let (journal, notices) = created.await.map_err(|error| match error.is::<Late>() {
        true => error.context(shown.clone()),
        false => error,
    })?;
    if let Some(run) = journal.replaced() {
        tracing::warn!(
            "{shown} was the journal of run {run}, which has no outcome; it is replaced"
        );
    }
    Ok(Some((journal, notices)))
}

/// The journal has not answered in time.
#[derive(Debug, thiserror::Error)]
#[error("it has not answered for {0:?}")]
struct Late(Duration);

/// The result of `work`, if it comes within `limit`.
///
/// # Errors
/// That of `work`, or [`Late`].
async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    timeout(limit, work).await.map_err(|_| Late(limit))?
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        config::{FlagWords, Sources},
        resume::{Found, ResumeRequest, find},
    };

    fn new_run(journal: &Path) -> Begin {
        let journal = journal.display().to_string();
        let flags = [("np", "2"), ("journal", &journal), ("env", "A=b")];
        let flags = flags.map(|(key, word)| {
            let spelled = format!("--{key}");
            let words = vec![word.to_owned()];
            (key, FlagWords { spelled, words })
        });
        let sources = Sources {
            flags: flags.into(),
            ..Sources::default()
        };
        let config = sources.read().expect("sound");
        let settings = Settings::resolve(&config, vec!["true".to_owned()]).expect("consistent");
        let words = config.words();
        Begin::New {
            settings: Box::new(settings),
            words,
            run_id: None,
        }
    }

    /// The run of a journal. The driver that has ended may hold the lock for a moment.
    async fn found(request: &ResumeRequest) -> Begin {
        loop {
            match find(request, &|_| {}) {
                Ok(Found::Unfinished(run)) => return run.begin(false).expect("sound"),
                Ok(Found::Ended(outcome)) => panic!("{outcome:?}"),
                Err(error) if error.to_string().contains("has a driver") => {
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[tokio::test]
    async fn a_later_driver_is_the_same_run_in_the_next_epoch() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("journal");
        let listen = SocketAddr::from(([127, 0, 0, 1], 61_000));
        let begin = new_run(&path);
        let (first, settings) = (begin.identity().expect("ours"), begin.settings().clone());
        assert_eq!((first.epoch, first.listen), (DriverEpoch(1), None));
        let (journal, _notices) = begin
            .journal(&first, listen, Vec::new())
            .await
            .expect("created");
        journal.expect("it has one").keep();
        let request = ResumeRequest {
            run: first.run_id.clone(),
            journal: config::Journal::File(path),
            standby: None,
        };
        for epoch in 2..4 {
            let begin = found(&request).await;
            let later = begin.identity().expect("ours");
            assert_eq!(later.epoch, DriverEpoch(epoch));
            assert_eq!(later.run_id, first.run_id);
            assert_eq!(later.listen, Some(listen));
            assert_eq!(later.variables, first.variables);
            assert_eq!(later.directory, first.directory);
            assert_eq!(later.trust.authority(), first.trust.authority());
            assert_eq!(later.trust.secret(), first.trust.secret());
            assert!(!later.is_new);
            assert_eq!(begin.settings(), &settings);
            drop(
                begin
                    .journal(&later, listen, Vec::new())
                    .await
                    .expect("written"),
            );
        }
    }

    #[tokio::test]
    async fn a_disk_that_does_not_answer_ends_the_wait() {
        let error = in_time(Duration::ZERO, std::future::pending::<anyhow::Result<()>>())
            .await
            .expect_err("it never answers");
        assert!(error.is::<Late>(), "{error:#}");
    }

    #[tokio::test]
    async fn a_start_that_fails_leaves_no_journal() {
        let directory = tempfile::tempdir().expect("a directory");
        let begin = new_run(&directory.path().join("journal"));
        let identity = begin.identity().expect("ours");
        let listen = SocketAddr::from(([127, 0, 0, 1], 61_000));
        let (journal, _notices) = begin
            .journal(&identity, listen, Vec::new())
            .await
            .expect("created");
        let count = || std::fs::read_dir(directory.path()).expect("ours").count();
        assert_eq!(count(), 3);
        drop(journal);
        assert_eq!(count(), 0);
    }

    #[tokio::test]
    async fn a_named_journal_that_cannot_be_created_is_an_error() {
        let begin = new_run(Path::new("/proc/journal"));
        let identity = begin.identity().expect("ours");
        let listen = SocketAddr::from(([127, 0, 0, 1], 1));
        let error = begin
            .journal(&identity, listen, Vec::new())
            .await
            .expect_err("no file can be made");
        assert!(
            format!("{error:#}").starts_with("--journal: /proc/journal.lock: "),
            "{error:#}"
        );
        assert_eq!(format!("{error:#}").matches("os error").count(), 1);
    }
}
