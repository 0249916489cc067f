//! From valid single settings to consistent settings of a job.

use std::num::NonZeroU32;

use elasticrun_plugin_sdk::hosts::{HostSpec, MAX_SLOTS, parse_host_list};

use super::{
    cooldown::CooldownRange,
    counts, durable,
    error::{Error, Written},
    host_sources,
    journal::{self, JournalPlace},
    kinds::{BlacklistPolicy, Encryption, Launcher, LogLevel, RestartMode},
    layer::Origin,
    locality::launcher_of,
    network::check_interfaces,
    parameter_servers, paths, replica_groups, replication,
    settings::{
        Failures, Hosts, Join, Journal, Launch, Mode, Output, Prefix, Settings, Source, Ssh,
        Timeouts,
    },
    size::Size,
    table::{Config, Sourced},
    value::{Setting, Shape},
    variable::Variable,
};

impl Settings {
    /// Completes and checks a configuration for `command`. Reads the host file, if one is named.
    ///
    /// # Errors
    /// The first setting that contradicts another, that is missing, or whose file cannot be used.
    pub fn resolve(config: &Config, command: Vec<String>) -> Result<Self, Error> {
        if command.first().is_none_or(String::is_empty) {
            return Err(Error::Usage {
                message:
                    "no command: expected elasticrun [OPTIONS] COMMAND..., see elasticrun --help"
                        .to_owned(),
            });
        }
        exclusive_hosts(config)?;
        replica_groups::check(config)?;
        host_sources::check_spark_is_alone(config)?;
        paths::check(config)?;
        let fixed = paths::fixed_hosts(config)?;
        let sources = sources(config, fixed.as_deref());
        let discovers = sources
            .iter()
            .any(|source| !matches!(source, Source::Fixed(_)));
        let mode = mode(config, discovers);
        let workers = counts::workers(config, fixed.as_deref(), discovers)?;
        let launch = launch(config)?;
        if serves_a_host(&launch, &sources) {
            let interfaces = &config.network_interface;
            check_interfaces(&interfaces.origin, &interfaces.value)?;
        }
        Ok(Self {
            command,
            mode,
            hosts: if sources.is_empty() {
                Hosts::new(config, vec![localhost(config, workers.np)?])
            } else {
                Hosts::new(config, sources)
            },
            workers,
            timeouts: timeouts(config)?,
            failures: failures(config, discovers)?,
            journal: journal(config)?,
            supervise: config.supervise.value,
            replication: replication::replication(config, mode)?,
            parameter_servers: parameter_servers::parameter_servers(config, mode)?,
            durable: durable::durable(config)?,
            launch,
            output: output(config)?,
        })
    }
}

/// Where the journal is. A driver that is resumed needs one.
fn journal(config: &Config) -> Result<Journal, Error> {
    let supervise = &config.supervise;
    if supervise.value && (config.parent_fd.value.is_some() || config.spark.value.is_some()) {
        let why = "not where another program provides the hosts: the job ends with it";
        return Err(supervise.contradicts("supervise", why));
    }
    Ok(match &config.journal.value {
        JournalPlace::None if supervise.value && config.journal.is_given() => {
            return Err(supervise.contradicts("supervise", "not with --journal none"));
        }
        JournalPlace::None if supervise.value => Journal::InStateDirectory,
        JournalPlace::None => Journal::None,
        JournalPlace::Auto => Journal::InStateDirectory,
        JournalPlace::File(path) => Journal::File(paths::absolute(path.clone())),
        JournalPlace::Etcd(place) => {
            check_orphan_timeout(config)?;
            Journal::Etcd(place.clone())
        }
    })
}

/// Agents must wait for longer than the lease of a driver that was killed may last in etcd.
fn check_orphan_timeout(config: &Config) -> Result<(), Error> {
    let least = journal::SHORTEST_LEASE * 2;
    if config.orphan_timeout.value.get() >= least {
        return Ok(());
    }
    let why = format!(
        "expected at least {} with a journal in etcd: agents wait for the end of the lease of a driver that was killed",
        super::duration::show(least)
    );
    Err(config.orphan_timeout.contradicts("orphan-timeout", why))
}

impl Hosts {
    /// The sources of a configuration, without a job.
    ///
    /// # Errors
    /// As [`Settings::resolve`], and if there is no source.
    pub fn resolve(config: &Config) -> Result<Self, Error> {
        exclusive_hosts(config)?;
        paths::check(config)?;
        let fixed = paths::fixed_hosts(config)?;
        match sources(config, fixed.as_deref()) {
            sources if sources.is_empty() => Err(Error::Missing {
                flag: "--discovery",
                why: "expected a source of hosts: -H, --hostfile, --host-discovery-script or --discovery NAME".to_owned(),
            }),
            sources => Ok(Self::new(config, sources)),
        }
    }

    fn new(config: &Config, sources: Vec<Source>) -> Self {
        Self {
            sources,
            slots_per_host: config.slots_per_host.value,
            plugin_dirs: config.plugin_dir.value.clone(),
            plugin_isolation: config.plugin_isolation.value,
            plugin_allow: config.plugin_allow.value.clone(),
            interval: config.discovery_interval.value.get(),
        }
    }
}

impl<T: Setting> Sourced<T> {
    /// The error that this value contradicts another one.
    pub(super) fn contradicts(&self, key: &str, why: impl Into<String>) -> Error {
        let words = match self.value.show() {
            _ if T::SHAPE == Shape::Switch && matches!(self.origin, Origin::Flag(_)) => Vec::new(),
            Some(toml::Value::Array(values)) => values.iter().map(word).collect(),
            Some(value) => vec![word(&value)],
            None => Vec::new(),
        };
        Error::Combination {
            written: self.origin.written(key, &words),
            why: why.into(),
        }
    }
}

fn word(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn exclusive_hosts(config: &Config) -> Result<(), Error> {
    let Config {
        hosts,
        hostfile,
        host_discovery_script: script,
        ..
    } = config;
    if hosts.value.is_some() && hostfile.value.is_some() {
        return Err(hostfile.contradicts(
            "hostfile",
            format!("not together with {}", hosts.origin.name("hosts")),
        ));
    }
    if script.value.is_some() {
        let other = [
            (hosts.value.is_some(), &hosts.origin, "hosts"),
            (hostfile.value.is_some(), &hostfile.origin, "hostfile"),
        ];
        if let Some((_, origin, key)) = other.iter().find(|(given, ..)| *given) {
            let why = format!(
                "not together with {}; hosts are fixed or discovered",
                origin.name(key)
            );
            return Err(script.contradicts("host-discovery-script", why));
        }
    }
    Ok(())
}

/// The sources, in the order in which hosts are numbered: fixed hosts first.
fn sources(config: &Config, fixed: Option<&[HostSpec]>) -> Vec<Source> {
    let mut sources = Vec::new();
    sources.extend(fixed.map(|hosts| Source::Fixed(hosts.to_vec())));
    sources.extend(
        config
            .host_discovery_script
            .value
            .clone()
            .map(|path| Source::Script(paths::absolute(path))),
    );
    sources.extend(config.discovery.value.iter().cloned().map(Source::Plugin));
    sources.extend(host_sources::specs(config).map(Source::Plugin));
    if sources.is_empty() && launcher(config) == Some(Launcher::Agent) {
        sources.push(Source::Registration);
    }
    sources
}

/// This machine, with a slot for each worker.
fn localhost(config: &Config, np: NonZeroU32) -> Result<Source, Error> {
    let text = format!("localhost:{np}");
    let why =
        format!("expected at most {MAX_SLOTS}, the workers of one host; name further hosts by -H");
    match parse_host_list(&text) {
        Ok(hosts) => Ok(Source::Fixed(hosts)),
        // Without -np the number is that of the setting from which it follows.
        Err(_) if config.np.is_given() => Err(config.np.contradicts("np", why)),
        Err(_) if config.max_np.is_given() => Err(config.max_np.contradicts("max-np", why)),
        Err(_) => Err(config.min_np.contradicts("min-np", why)),
    }
}

fn mode(config: &Config, discovers: bool) -> Mode {
    let restarts = config.restart_mode.is_given() || config.max_restarts.value > 0;
    if restarts || members_may_change(config) || discovers {
        Mode::Elastic
    } else {
        Mode::Standard
    }
}

/// Whether options let the members change. Sources of hosts may do so as well.
fn members_may_change(config: &Config) -> bool {
    config.min_np.is_given() || config.max_np.is_given() || config.spares.value > 0
}

fn timeouts(config: &Config) -> Result<Timeouts, Error> {
    let interval = config.heartbeat_interval.value;
    if config.heartbeat_timeout.value <= interval {
        return Err(config.heartbeat_timeout.contradicts(
            "heartbeat-timeout",
            format!(
                "expected longer than {} of --heartbeat-interval",
                super::duration::show(interval.get())
            ),
        ));
    }
    Ok(Timeouts {
        elastic: config.elastic_timeout.value.get(),
        start: config.start_timeout.value.get(),
        abort: config.abort_timeout.value.get(),
        interrupt: config.interrupt_timeout.value.get(),
        drain: config.drain_timeout.value,
        signal_notice: config.signal_notice.value.map(|time| time.get()),
        exit: config.exit_timeout.value.get(),
        orphan: config.orphan_timeout.value.get(),
        shutdown: config.shutdown_timeout.value,
        last_call: config.last_call.value,
        heartbeat_interval: interval.get(),
        heartbeat: config.heartbeat_timeout.value.get(),
    })
}

fn failures(config: &Config, discovers: bool) -> Result<Failures, Error> {
    let range = &config.blacklist_cooldown_range;
    let forever = config.blacklist.value == BlacklistPolicy::Forever;
    if forever && range.is_given() && range.origin.same_source(&config.blacklist.origin) {
        let why = format!(
            "not together with forever of {}",
            config.blacklist.origin.name("blacklist")
        );
        return Err(range.contradicts("blacklist-cooldown-range", why));
    }
    let restart_mode = restart_mode(config, discovers);
    // As with torchrun, all workers are needed, and only the number of restarts limits failures.
    let fixed = !discovers && !members_may_change(config);
    let at_once = fixed && restart_mode == RestartMode::Process;
    let cooldown = if at_once && !range.is_given() {
        CooldownRange::NONE
    } else {
        range.value
    };
    let max_host_failures = if at_once && !config.max_host_failures.is_given() {
        0
    } else {
        config.max_host_failures.value
    };
    Ok(Failures {
        reset_limit: config.reset_limit.value,
        max_restarts: config.max_restarts.value,
        restart_mode,
        cooldown: (!forever).then_some(cooldown),
        max_host_failures: NonZeroU32::new(max_host_failures),
        domain: config.failure_domain.value,
    })
}

/// `--max-restarts` alone has the meaning of torchrun.
fn restart_mode(config: &Config, discovers: bool) -> RestartMode {
    let alone = config.max_restarts.value > 0 && !discovers && !members_may_change(config);
    if alone && !config.restart_mode.is_given() {
        RestartMode::Process
    } else {
        config.restart_mode.value
    }
}

/// The launcher. With an embedder, hosts register themselves. The bridge of Spark is an embedder.
fn launcher(config: &Config) -> Option<Launcher> {
    let embedded = config.parent_fd.value.is_some() || config.spark.value.is_some();
    config
        .launcher
        .value
        .or(embedded.then_some(Launcher::Agent))
}

/// Whether this machine is a host of the job from its start. Hosts that a source discovers are not known yet.
fn serves_a_host(launch: &Launch, sources: &[Source]) -> bool {
    let is_local = |host| launcher_of(launch.launcher, host) == Launcher::Local;
    launch.embedder_fd.is_none()
        && launch.spark.is_none()
        && (sources.is_empty()
            || sources.iter().any(|source| match source {
                Source::Fixed(hosts) => hosts.iter().any(is_local),
                _ => false,
            }))
}

fn launch(config: &Config) -> Result<Launch, Error> {
    let join = Join {
        token_file: config.join_token_file.value.clone(),
        print: config.print_join_token.value,
    };
    let join = (join.print || join.token_file.is_some()).then_some(join);
    let embedder_fd = config.parent_fd.value.map(|fd| fd.get().cast_signed());
    if launcher(config) == Some(Launcher::Agent)
        && join.is_none()
        && embedder_fd.is_none()
        && config.spark.value.is_none()
    {
        return Err(config.launcher.contradicts(
            "launcher",
            "needs --join-token-file FILE or --print-join-token, so that agents can show the token",
        ));
    }
    let joins_alone = config.launcher.value == Some(Launcher::Agent) && embedder_fd.is_none();
    if joins_alone && config.spark.value.is_none() && config.network_interface.is_given() {
        return Err(config.network_interface.contradicts(
            "network-interface",
            "agents that register themselves have it on their own command line: elasticrun agent --network-interface NAME",
        ));
    }
    let is_set = |name: &str| std::env::var(name).is_ok();
    if let Some(missing) = (config.env.value.iter())
        .find(|variable| variable.value.is_none() && !is_set(&variable.name))
    {
        let name = &missing.name;
        return Err(config.env.contradicts(
            "env",
            format!("{name} is not set here: set it, or give its value by {name}=VALUE"),
        ));
    }
    Ok(Launch {
        launcher: launcher(config),
        listen: config.listen.value,
        join,
        embedder_fd,
        call: config.call_fd.value.map(|fd| fd.get().cast_signed()),
        worker_env: config.worker_env.value,
        env: config.env.value.clone(),
        spark: config.spark.value.as_ref().map(|master| master.0.clone()),
        ssh: Ssh {
            port: config.ssh_port.value,
            identity_file: config.ssh_identity_file.value.clone(),
            options: config.ssh_option.value.clone(),
        },
        push_binary: config.push_binary.value,
        network_interfaces: config.network_interface.value.0.clone(),
        encrypt_data: config.encrypt.value == Encryption::Data,
        commit_memory: config.commit_memory.value.map(Size::bytes),
        preload: config.preload.value.clone(),
        notice_file: config
            .notice_file
            .value
            .as_ref()
            .and_then(|path| path.to_str())
            .map(str::to_owned),
    })
}

fn output(config: &Config) -> Result<Output, Error> {
    let (quiet, verbose) = (&config.quiet, &config.verbose);
    if quiet.value && verbose.value && quiet.origin.same_source(&verbose.origin) {
        return Err(quiet.contradicts(
            "quiet",
            format!("not together with {}", verbose.origin.name("verbose")),
        ));
    }
    // Of two origins the greater one wins.
    let quiet_wins = quiet.value && (!verbose.value || quiet.origin > verbose.origin);
    let verbose_wins = verbose.value && !quiet_wins;
    if !config.redirects.value.is_empty() && config.output_filename.value.is_none() {
        let why = "needs --output-filename DIR, which gets these streams";
        return Err(config.redirects.contradicts("redirects", why));
    }
    let why = "needs --output-filename DIR, where a file gets these lines";
    if config.output_filename.value.is_none() {
        for (filters, key) in [
            (&config.duplicate_stdout_filters, "duplicate-stdout-filters"),
            (&config.duplicate_stderr_filters, "duplicate-stderr-filters"),
        ] {
            if filters.value.is_some() {
                return Err(filters.contradicts(key, why));
            }
        }
    }
    Ok(Output {
        directory: config.output_filename.value.clone(),
        redirects: config.redirects.value.clone(),
        stdout_filters: config.duplicate_stdout_filters.value.clone(),
        stderr_filters: config.duplicate_stderr_filters.value.clone(),
        shown: config.local_ranks_filter.value.clone(),
        prefix: prefix(config)?,
        log_level: config
            .log_level
            .value
            .unwrap_or(match (quiet_wins, verbose_wins) {
                (true, _) => LogLevel::Warn,
                (false, true) => LogLevel::Debug,
                (false, false) => LogLevel::Info,
            }),
        log_format: config.log_format.value,
        quiet: quiet_wins,
    })
}

/// What stands before each line of output. At most one of the three settings says so.
fn prefix(config: &Config) -> Result<Prefix, Error> {
    let (none, time) = (&config.no_prefix, &config.prefix_output_with_timestamp);
    let template = &config.line_prefix;
    let given = [
        (none.value, &none.origin, "no-prefix"),
        (time.value, &time.origin, "prefix-output-with-timestamp"),
        (template.value.is_some(), &template.origin, "line-prefix"),
    ];
    let mut given = given.iter().filter(|(given, ..)| *given);
    if let (Some((_, first, key)), Some((_, second, other))) = (given.next(), given.next()) {
        return Err(Error::Combination {
            written: Written(first.name(key)),
            why: format!("not together with {}", second.name(other)),
        });
    }
    let role = |variable: &&Variable| variable.name == "ROLE_NAME";
    let role = config.env.value.iter().rev().find(role);
    let role = role.and_then(|variable| variable.value.as_deref());
    Ok(match &template.value {
        Some(template) => Prefix::Template(template.clone().with_role(role)),
        None if none.value => Prefix::None,
        None if time.value => Prefix::TimeAndRank,
        None => Prefix::Rank,
    })
}
