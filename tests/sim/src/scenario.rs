//! The scenario of a seed: the settings of a job, its hosts, and its faults.

mod breaks;
mod deaths;
mod divided;
mod hardships;
mod replicas;
mod seeded;
mod servers;

use std::time::Duration;

use elasticrun_core::{
    Cooldown, FailureDomain, RestartMode, Settings, Time,
    groups::UNDECIDED,
    lease::{self, Lease},
};

use crate::{
    fault::{Fault, LONGEST_NOTICE},
    groups::GroupPlan,
    listing::Listing,
    rng::Rng,
    world::reading::DataSet,
};
pub(crate) use seeded::Seeded;

/// Everything that is decided before a run begins.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) settings: Settings,
    pub(crate) heartbeat_interval: Duration,
    pub(crate) heartbeat_timeout: Duration,
    pub(crate) orphan_timeout: Duration,
    pub(crate) grace: Duration,
    /// How long a worker waits for its peers to connect.
    pub(crate) connect_timeout: Duration,
    /// How long a collective waits for a peer that is cut off.
    pub(crate) stall_timeout: Duration,
    /// Slots of every host that may ever appear.
    pub(crate) hosts: Vec<u32>,
    /// How the sources list each host.
    pub(crate) listings: Vec<Listing>,
    /// Number of hosts that are listed at first.
    pub(crate) listed: usize,
    /// Interval of polls; none: each source answers once.
    pub(crate) discovery_interval: Option<Duration>,
    /// Number of steps of the training.
    pub(crate) steps: u64,
    /// Average duration of a step.
    pub(crate) step: Duration,
    /// A commit follows every so many steps; other boundaries only check.
    pub(crate) commit_every: u64,
    /// Longest time to seal a commit.
    pub(crate) seal: Duration,
    /// Longest time of a sync.
    pub(crate) sync: Duration,
    /// Longest import of a process.
    pub(crate) import: Duration,
    /// Usual delay of a message between hosts.
    pub(crate) delay: Duration,
    /// Longest delay of a message from an agent to its worker.
    pub(crate) hearing: Duration,
    /// Percentage of messages between driver and agents that arrive twice.
    pub(crate) repeats: u64,
    /// Percentage of peers that detect the loss of another by themselves.
    pub(crate) notice: u64,
    /// How long an agent that gets SIGTERM waits for its workers to leave.
    pub(crate) drain_timeout: Duration,
    /// Planned faults.
    pub(crate) faults: Vec<(Time, Fault)>,
    /// Number of faults that follow right after a round was planned, started or interrupted.
    pub(crate) ambushes: u64,
    /// Deaths of the driver that follow right after a decision.
    pub(crate) ambushing_deaths: Vec<Fault>,
    /// The time when all faults stop.
    pub(crate) heal: Time,
    /// Nothing fails at all, so the job may not refuse an event either.
    pub(crate) calm: bool,
    /// Only workers fail and the network is well, so no recovery may wait for a timeout.
    pub(crate) gentle: bool,
    /// Rounds lose all their hosts at once, while others hold older commits.
    split: bool,
    /// Percentage of rounds that lose the data path of a member as they start.
    pub(crate) cuts: u64,
    /// Percentage of rounds that break and then lose another member, long after that.
    pub(crate) late_deaths: u64,
    pub(crate) data: DataSet,
    /// How late the driver notices a deadline at most.
    pub(crate) late: Duration,
    /// How long events gather at most before the job is settled.
    pub(crate) gathers: Duration,
    /// Processes start as groups at first.
    pub(crate) groups: Option<GroupPlan>,
    /// Workers have reset callbacks, which read the state that they come back with.
    pub(crate) callbacks: bool,
    /// The script runs other collectives beside the training, which fail when a peer is lost, and commits all the
    /// same.
    pub(crate) careless: bool,
    /// Agents keep their workers when the connection ends, and return with them.
    pub(crate) returns: bool,
    /// Agents that register themselves say which process they are, and their deaths are reported.
    pub(crate) wills: bool,
    /// Only the network between driver and agents breaks, and each time for less than agents keep their workers.
    pub(crate) only_breaks: bool,
    /// Commits are written to a durable store, this often.
    pub(crate) durable: Option<Duration>,
    /// Longest time of such a write.
    pub(crate) write: Duration,
    /// Percentage of rounds that lose all their hosts soon after they start.
    pub(crate) losses: u64,
    /// Commits are replicated, this often.
    pub(crate) replicas: Option<Duration>,
    /// Percentage of rounds that lose a host with their base as they start, while others have not read it.
    pub(crate) partings: u64,
    /// Percentage of commits of a divided state whose shard has another layout than those of the other members.
    pub(crate) strays: u64,
    /// Commits of a divided state are copied while training goes on.
    pub(crate) asynchronous: bool,
    /// From this step on the script raises an error, so it never ends well.
    pub(crate) raises_at: Option<u64>,
}

/// Derives the generator of deaths of the driver.
const DEATHS: u64 = 0x0064_6561_7468;

/// Derives the generator of last wills.
const WILLS: u64 = 0x0077_696c_6c73;

/// Derives the generator of jobs with a divided state.
const DIVIDED: u64 = 0x6469_7669_6465;

/// Derives the generator of asynchronous commits.
const ASYNCHRONOUS: u64 = 0x6173_796e_6300;

/// Derives the generator of slow writes to the durable store.
const WRITES: u64 = 0x7772_6974_6573;

/// Derives the generator of replicas.
const REPLICAS: u64 = 0x7265_706c_6963;
/// Derives the generator of cuts.
const CUTS: u64 = 0x6375_7473_0000_0000;

/// Derives the generator of parameter servers.
const SERVERS: u64 = 0x7365_7276_6572;

/// One of this many scenarios has hundreds of hosts.
const MANY_HOSTS: u64 = 3_000;

impl Scenario {
    /// Draws the scenario of a seed. The data has a separate generator.
    pub(crate) fn draw(rng: &mut Rng, data: &mut Rng) -> Self {
        let count = if rng.percent(3) {
            rng.range(6, 12) as usize
        } else {
            rng.range(1, 5) as usize
        };
        let many = data.range(1, MANY_HOSTS) == 1;
        let count = if many { 200 } else { count };
        let most = if count > 3 { 2 } else { 4 };
        let hosts: Vec<u32> = (0..count + 3).map(|_| rng.range(1, most) as u32).collect();
        let total: u32 = hosts[..count].iter().sum();
        let kind = rng.range(0, 99);
        let (calm, gentle) = (kind < 8, (8..16).contains(&kind));
        let quiet = calm || gentle;
        // The stripes of the data suffice for some dozens of workers.
        let total = if many { total.min(24) } else { total };
        let mut settings = draw_settings(rng, total);
        if many {
            settings.max_np = Some(settings.np.max(settings.max_np.unwrap_or(0)));
        }
        let heal = Time::from_start(rng.millis(2_000, 30_000));
        let mut scenario = Self {
            heartbeat_interval: rng
                .pick(&[200, 500, 1000])
                .map_or(Duration::ZERO, Duration::from_millis),
            heartbeat_timeout: rng.millis(2_000, 5_000),
            orphan_timeout: rng.millis(0, 5_000),
            grace: rng.millis(100, 3_000),
            connect_timeout: rng.millis(500, 5_000),
            stall_timeout: rng.millis(500, 10_000),
            listings: vec![Listing::plain(); hosts.len()],
            hosts,
            listed: count,
            discovery_interval: (settings.elastic && rng.percent(80))
                .then(|| rng.millis(200, 1_500)),
            steps: rng.range(3, 40),
            step: rng
                .pick(&[1, 10, 100, 400])
                .map_or(Duration::ZERO, Duration::from_millis),
            commit_every: rng.pick(&[1, 1, 2, 5]).unwrap_or(1),
            seal: rng
                .pick(&[1, 3, 3, 300])
                .map_or(Duration::ZERO, Duration::from_millis),
            sync: rng
                .pick(&[5, 20, 20, 1_000])
                .map_or(Duration::ZERO, Duration::from_millis),
            import: rng
                .pick(&[50, 500, 3_000])
                .map_or(Duration::ZERO, Duration::from_millis),
            delay: rng
                .pick(&[100, 1_000, 20_000])
                .map_or(Duration::ZERO, Duration::from_micros),
            hearing: Duration::from_millis(1),
            repeats: if quiet {
                0
            } else {
                rng.pick(&[0, 0, 3, 20]).unwrap_or(0)
            },
            notice: rng.pick(&[0, 50, 100]).unwrap_or(0),
            drain_timeout: if settings.elastic {
                rng.pick(&[0, 2_000, 20_000])
                    .map_or(Duration::ZERO, Duration::from_millis)
            } else {
                Duration::ZERO
            },
            faults: Vec::new(),
            ambushes: if quiet {
                0
            } else {
                rng.pick(&[0, 1, 2, 4]).unwrap_or(0)
            },
            ambushing_deaths: Vec::new(),
            heal,
            calm,
            gentle,
            split: false,
            cuts: 0,
            late_deaths: 0,
            settings,
            late: Duration::ZERO,
            gathers: Duration::ZERO,
            data: DataSet::draw(data),
            groups: None,
            callbacks: false,
            careless: false,
            returns: false,
            wills: false,
            only_breaks: false,
            durable: None,
            write: Duration::from_secs(2),
            losses: 0,
            replicas: None,
            partings: 0,
            strays: 0,
            asynchronous: false,
            raises_at: None,
        };
        if !quiet {
            // Draws after the data set use its generator, so the draws of the other generator stay unchanged.
            let late = data.pick(&[0, 0, 50, 1_500]).unwrap_or(0);
            scenario.late = Duration::from_millis(late);
        }
        scenario.callbacks = data.percent(50);
        scenario.careless = data.percent(20);
        if !quiet && scenario.settings.elastic && scenario.listed >= 3 && data.percent(15) {
            scenario.split(rng);
        }
        scenario.settings.fence = scenario.lease().fence();
        scenario.settings.keep = scenario.lease().keep();
        scenario.settings.silence = scenario.lease().silence();
        scenario.settings.probe_timeout = scenario.heartbeat_timeout;
        scenario.settings.grace = scenario.grace;
        scenario.settings.lease = scenario.lease().length();
        scenario.faults = scenario.draw_faults(rng);
        let (lasts, stalls) = (data.percent(5), data.percent(10));
        let early = |rng: &mut Rng| Time::from_start(rng.millis(0, 4_000));
        let mut without_data = false;
        if lasts && !quiet && scenario.settings.elastic {
            let fault = Fault::draw_lasting(data);
            without_data = fault == Fault::LoseData;
            scenario.faults.push((early(data), fault));
        }
        if !quiet && scenario.settings.elastic && data.percent(3) {
            scenario.raises_at = Some(data.range(0, scenario.steps - 1));
        }
        if stalls && !quiet {
            let fault = Fault::StallAgent(data.millis(500, 30_000));
            scenario.faults.push((early(data), fault));
        }
        if !quiet && data.percent(5) {
            let fault = Fault::StallDriver(data.millis(300, 30_000));
            scenario.faults.push((early(data), fault));
        }
        scenario.draw_groups(data.clone());
        // A separate generator, for the same reason.
        let mut own = Rng::new(data.clone().seed());
        if !quiet && own.percent(15) {
            // The thread that receives the agent's messages gets no processor for a while.
            scenario.hearing = own.millis(1, 3_000);
        }
        if own.percent(30) && !scenario.settings.self_registration {
            scenario.draw_sources(&mut own);
        }
        if scenario.split && own.percent(30) {
            scenario.cut(&mut own);
        }
        if without_data && !scenario.split && !many && own.percent(50) {
            scenario.break_again(&mut own);
        }
        if !many {
            scenario.settings.launches_at_once = own.pick(&[64, 64, 1, 2, 4]).unwrap_or(64);
        }
        if scenario.settings.elastic && own.percent(8) {
            let within = own.millis(500, LONGEST_NOTICE.as_millis() as u64);
            let apart = own.pick(&[0, 10, 200, 1_000]).unwrap_or(0);
            let apart = Duration::from_millis(apart);
            let fault = Fault::NoticeAll { within, apart };
            scenario.faults.push((early(&mut own), fault));
        }
        if own.percent(5) {
            scenario.keep_orphans_long(&mut own);
        }
        let breaks = Rng::new(own.clone().seed());
        let deaths = Rng::new(breaks.clone().seed() ^ DEATHS);
        scenario.draw_breaks(breaks);
        if !quiet && scenario.settings.elastic && own.percent(20) {
            scenario.durable = Some(own.millis(20, 2_000));
            scenario.settings.durable = true;
        }
        let mut wills = Rng::new(deaths.clone().seed() ^ WILLS);
        scenario.wills = scenario.settings.self_registration && wills.percent(80);
        scenario.draw_divided(Rng::new(deaths.clone().seed() ^ DIVIDED));
        scenario.draw_asynchronous(Rng::new(deaths.clone().seed() ^ ASYNCHRONOUS));
        scenario.draw_replicas(Rng::new(deaths.clone().seed() ^ REPLICAS));
        scenario.draw_cuts(Rng::new(deaths.clone().seed() ^ CUTS));
        scenario.draw_servers(Rng::new(deaths.clone().seed() ^ SERVERS));
        let mut writes = Rng::new(deaths.clone().seed() ^ WRITES);
        if scenario.split && scenario.durable.is_some() && writes.percent(60) {
            scenario.write_late(&mut writes);
        }
        // The durable store of the world does not know of later drivers.
        if scenario.durable.is_none() {
            scenario.draw_deaths(deaths);
        }
        scenario
    }

    /// Several sources, which do not report the slots of all hosts.
    fn draw_sources(&mut self, rng: &mut Rng) {
        let count = rng.range(1, 3) as usize;
        self.settings.sources = count;
        self.settings.slots_per_host = rng.percent(20).then(|| rng.range(1, 3) as u32);
        for listing in &mut self.listings {
            *listing = Listing::draw(rng, count);
        }
    }

    /// How long workers may train without their driver.
    pub(crate) fn lease(&self) -> Lease {
        Lease {
            interval: self.heartbeat_interval,
            timeout: self.heartbeat_timeout,
            orphan: self.orphan_timeout,
            train: lease::TRAIN,
        }
    }

    pub(crate) fn draw_faults(&self, rng: &mut Rng) -> Vec<(Time, Fault)> {
        let count = match rng.range(0, 9) {
            0 => 0,
            1..=4 => rng.range(1, 3),
            5..=8 => rng.range(2, 8),
            _ => rng.range(8, 20),
        };
        let end = self.heal.since_start().as_micros() as u64;
        let mut faults = Vec::new();
        for _ in 0..count {
            // Half of all faults fall into the first seconds, when most simulated jobs run.
            let latest = if rng.percent(50) {
                end.min(4_000_000)
            } else {
                end
            };
            let at = Time::from_start(rng.micros(0, latest));
            let fault = if self.calm {
                Fault::draw_change(rng)
            } else if self.gentle {
                Fault::draw_gentle(rng)
            } else if self.split {
                Fault::draw_split(rng)
            } else {
                Fault::draw(rng)
            };
            faults.push((at, fault));
        }
        faults
    }

    /// A bound for the rest of the job once all faults stop.
    pub(crate) fn patience(&self) -> Duration {
        let settings = &self.settings;
        let cooldown = match settings.cooldown {
            Cooldown::Forever => Duration::ZERO,
            Cooldown::Range { high, .. } => high,
        };
        // The job may wait for each round that is lost with all its hosts.
        let waits = settings.elastic_timeout * 3
            + settings.elastic_timeout / 10 * 4
            + settings.start_timeout * 4
            + settings.abort_timeout * 4
            + settings.interrupt_timeout * 4
            + settings.exit_timeout * 2
            + cooldown * 3
            + self.heartbeat_timeout * 4
            + self.orphan_timeout * 4
            + self.grace * 6
            + LONGEST_NOTICE * 4
            + (self.connect_timeout + self.stall_timeout) * 4
            + self.import * 6;
        let groups = self
            .groups
            .as_ref()
            .map_or(Duration::ZERO, |groups| UNDECIDED * 3 + groups.late * 3);
        waits
            + groups
            + settings.fence * 3
            + self
                .durable
                .map_or(Duration::ZERO, |_| settings.start_timeout * 4)
            + self.step * (self.steps as u32) * 4
            + Duration::from_secs(60)
    }
}

fn draw_settings(rng: &mut Rng, total: u32) -> Settings {
    let elastic = rng.percent(93);
    let np = if rng.percent(90) {
        rng.range(1, u64::from(total))
    } else {
        u64::from(total) + rng.range(1, 2)
    } as u32;
    if !elastic {
        return Settings {
            start_timeout: rng.millis(5_000, 20_000),
            elastic_timeout: rng.millis(3_000, 20_000),
            exit_timeout: rng.millis(2_000, 10_000),
            ..Settings::standard(np)
        };
    }
    let min_np = rng.range(1, u64::from(np)) as u32;
    let max_np = match rng.range(0, 3) {
        0 => None,
        1 => Some(np),
        _ => Some(np + rng.range(0, 4) as u32),
    };
    let low = rng.pick(&[0, 0, 200, 1_000, 5_000]).unwrap_or(0);
    let cooldown = if rng.percent(15) {
        Cooldown::Forever
    } else {
        Cooldown::Range {
            low: Duration::from_millis(low),
            high: Duration::from_millis(low + rng.range(0, 10_000)),
        }
    };
    Settings {
        spares: rng.pick(&[0, 0, 1, 2]).unwrap_or(0),
        elastic_timeout: rng.millis(2_000, 30_000),
        start_timeout: rng.millis(5_000, 20_000),
        abort_timeout: rng.millis(1_000, 8_000),
        interrupt_timeout: rng.millis(1_000, 8_000),
        exit_timeout: rng.millis(2_000, 10_000),
        last_call: rng.millis(0, 2_000),
        reset_limit: rng.percent(15).then(|| rng.range(0, 4) as u32),
        max_restarts: rng.pick(&[0, 0, 1, 2]).unwrap_or(0),
        max_host_failures: rng.percent(60).then(|| rng.range(1, 5) as u32),
        cooldown,
        failure_domain: rng
            .pick(&[
                FailureDomain::Auto,
                FailureDomain::Host,
                FailureDomain::Slot,
            ])
            .unwrap_or(FailureDomain::Auto),
        self_registration: rng.percent(15),
        // `draw_groups` turns some of them into jobs of groups.
        restart_mode: RestartMode::InProcess,
        ..Settings::elastic(np, min_np, max_np)
    }
}
