//! Mistakes to plant: mistakes of other programs, former mistakes of this one, and mistakes that a change could
//! introduce. With them the simulation proves that it would detect each one.
//!
//! They exist only with the feature `mutants`, which no shipped build enables. Without it [`planted`] is `false` at
//! compile time.
//!
//! The simulation plants a mistake for the current thread: the machines are pure, so one thread does all the work of a
//! run. In a real process a mistake is planted by name for all threads: `make wheel-mutants`.
//!
//! Each mistake names the rules that it breaks. A number is an elastic rule of the contract, `R` and a number an
//! invariant of the job, and `W` and a number one of a worker ([`crate::worker`]).

/// Defines the mistakes of a machine, each with the rules that it breaks, and how one of them is planted.
macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident: $($breaks:literal)+,)+) => {
        #[cfg(feature = "mutants")]
        thread_local! {
            static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
        }

        /// Plants a mistake for this thread, or removes it.
        #[cfg(feature = "mutants")]
        pub fn plant(mutant: Option<Mutant>) {
            PLANTED.set(mutant);
        }

        /// The mistake that is planted for all threads of this process.
        #[cfg(feature = "mutants")]
        static EVERYWHERE: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

        /// Plants the mistake with this name for all threads of this process, once. `false` if there is no such mistake.
        #[cfg(feature = "mutants")]
        pub fn plant_everywhere(name: &str) -> bool {
            let named = |mutant: &&Mutant| format!("{mutant:?}") == name;
            (Mutant::ALL.iter().find(named)).is_some_and(|mutant| EVERYWHERE.set(*mutant).is_ok())
        }

        /// Whether this mistake is planted.
        #[cfg(feature = "mutants")]
        pub fn planted(mutant: Mutant) -> bool {
            let here = PLANTED.get().or_else(|| EVERYWHERE.get().copied());
            here == Some(mutant)
        }

        /// Whether this mistake is planted: never.
        #[cfg(not(feature = "mutants"))]
        pub const fn planted(_: Mutant) -> bool {
            false
        }

        /// A mistake that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// All mistakes.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The rules and invariants that the mistake breaks.
            pub const fn breaks(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$($breaks),+],)+
                }
            }
        }
    };
}
pub(crate) use mutants;

mutants! {
    // Hosts.
    /// A change of the hosts before the first worker has joined is lost.
    EarlyChange: "1" "R6",
    /// A host that is missing from one answer is removed.
    MissingOnce: "1",
    /// A host that is missing from an incomplete answer counts as missing.
    PartLeavesOut: "1",
    /// A host that one of two sources omits is removed.
    OneSourceRemoves: "1",
    /// The failure of a source removes its hosts.
    FailureRemoves: "1",
    /// Slots that a source has inferred apply, whatever the agent detects.
    InferredSlots: "1",
    /// Hosts are ordered by name.
    OrderByName: "1" "R2",
    /// A later poll that fails for good ends the job, as the first would.
    LaterPollFatal: "1" "R10",
    /// A host that is reported as gone is kept until two answers omit it.
    GoneKept: "1" "R5",
    /// A first poll that fails for good is retried.
    FirstPollRetried: "1" "R10",

    // Ranks.
    /// Rank 0 is a newcomer.
    NewcomerFirst: "2" "R2",
    /// Rank 0 moves to a survivor whose slot or host comes first.
    LeaderMoves: "2" "R2",
    /// A host whose cooldown is over keeps its place in the order.
    PlaceKept: "2" "R2",
    /// A newcomer takes the place of a survivor where max_np cuts.
    SurvivorDisplaced: "2" "R2",
    /// cross_size counts all hosts, with or without that local rank.
    CrossOfAllHosts: "2" "R1",
    /// All waiting workers are planned, even beyond max_np.
    MaxPassed: "2" "R1",
    /// One worker is enough for a round after the first.
    MinIgnored: "2" "R1",

    // Change.
    /// A waiting spare interrupts a round that has no room for it.
    SpareInterrupts: "3" "10",
    /// A draining host interrupts the round, although no member of the round is on it.
    IdleDrainInterrupts: "3",
    /// A host with fewer slots than before keeps its former slots.
    SlotsKept: "3" "R5",
    /// The cause of every change is reported as mixed.
    AlwaysMixed: "3",

    // Interrupt.
    /// The common boundary is that of the host that counted last.
    BoundaryOfLast: "4" "R6",
    /// A graceful change aborts the round at once.
    ChangeAborts: "4",
    /// A hold is not withdrawn when the first member has finished.
    HoldKept: "4" "5",
    /// The wait for workers that do not reach the boundary has no end.
    InterruptWithoutEnd: "4" "R9",

    // Registry.
    /// A spare that joins as the job ends leads to one more round.
    LateSpare: "5" "R10",
    /// The first success counts as the success of all.
    FirstSuccessIsAll: "5" "R10",
    /// A worker that fails after it has returned from run() counts as successful.
    FailureAfterFinish: "5" "R10",
    /// After a failure in an earlier round a success counts as incomplete.
    PastFailureCounts: "5" "R10",
    /// Members that failed in earlier rounds stay members.
    PastMembersStay: "5" "R10",
    /// After the failure of a process outside of any round a success counts as incomplete.
    OutsiderFailureCounts: "5" "R10",
    /// The success of a round with fewer than np members counts as incomplete.
    FewerIsNotAll: "5" "R10",
    /// The first member that succeeds ends the job as incomplete.
    NotAllHasty: "5" "R10",
    /// The end of all members is noticed only by the exit timeout.
    NotAllNever: "5" "R10",
    /// Members that were lost with their hosts or asked to stop count as successful if no other has failed.
    LostIsSuccess: "5" "R10",
    /// A worker that was lost with its host counts as failed by itself.
    LostIsFailed: "5" "8" "R10",
    /// A worker that failed by itself counts as lost with its host.
    FailedIsLost: "5" "R10",
    /// A worker that was asked to stop counts as failed by itself.
    StoppedIsFailed: "5" "10" "R10",
    /// A worker that ends as it was told to, before it could report that it left its round, counts as failed by itself.
    ObeyedIsFailed: "5" "R10",
    /// The exit timeout comes after half of its time.
    ExitTimeoutEarly: "5" "R10",
    /// The exit timeout never comes.
    ExitTimeoutNever: "5" "R9",
    /// One restart more than allowed is granted.
    RestartMore: "5" "R10",
    /// One restart less than allowed is granted.
    RestartLess: "5" "R10",
    /// Failures in earlier rounds without a commit are forgotten.
    RelapsesForgotten: "5" "R9",
    /// One round in which members fail by themselves suffices to blame the program.
    RelapseAtOnce: "5" "R10",
    /// A process that a signal ended counts towards the blame of the program.
    RelapseBySignal: "5" "R10",

    // Blacklist.
    /// The end of a cooldown has no effect while the job waits for slots.
    CooldownWhileWaiting: "6" "R9",
    /// All cooldowns are as long as the first.
    CooldownNeverGrows: "6",
    /// A cooldown grows to eight times its limit.
    CooldownUncapped: "6",
    /// Each failure of an episode counts.
    EpisodeCountsEach: "6",
    /// An episode continues when the next round begins.
    EpisodeWithoutEnd: "6",
    /// Health forgives nothing.
    NothingForgiven: "6",
    /// Any health forgives all.
    AllForgiven: "6",
    /// A domain is out for good one failure too late.
    LimitOneMore: "6",
    /// A restart does not forgive the hosts.
    RestartBlames: "6",
    /// The failure of a member takes out its slot, whatever the failure domain is.
    SlotForHost: "6" "R5",
    /// The failure of a process before a round takes out its host.
    HostForSlot: "6",
    /// A job whose hosts are all out for good waits for the elastic timeout.
    AllOutWaits: "6" "R9",
    /// A job whose hosts are all out for a while ends at once.
    AllOutHasty: "6" "R10",

    // Drain.
    /// Workers never leave a draining host at its deadline.
    DrainNeverDue: "7" "R6",
    /// Workers leave a draining host at once, even when too few others are available.
    DrainImpatient: "7",
    /// Workers of draining hosts that are needed stay only in the round that trains, not while it is left or formed anew.
    ReserveUnused: "7",
    /// Workers of draining hosts stay in use although enough others are there.
    ReserveAlways: "7" "R5",
    /// Workers of draining hosts that are needed stay beyond the time of their hosts.
    ReserveNeverDue: "7" "R5",
    /// Processes are started on draining hosts while their workers are needed.
    ReserveFilled: "7",
    /// The loss of a draining host is a failure.
    DrainIsFailure: "7" "6",
    /// A list revokes a notice.
    NoticeTakenBack: "7" "R5",
    /// A draining host is never released.
    NeverDrained: "7",
    /// A notice of a mere risk drains a host.
    RiskDrains: "7" "3",

    // Old and new.
    /// The loss of committed state is not noticed.
    LossUnnoticed: "8" "R12",
    /// State that never existed counts as lost.
    LossImagined: "8" "R10",
    /// An agent forgets the commits of dead processes.
    DeadForgotten: "8" "R12",
    /// An agent forgets the commits that equal the base.
    EqualForgotten: "8" "R12",
    /// The start does not name the keeper of the base.
    KeeperUnnamed: "8" "R12",

    // Reset limit.
    /// One round more than the reset limit allows.
    ResetMore: "9" "R10",
    /// One round less than the reset limit allows.
    ResetLess: "9" "R10",
    /// The last round that the reset limit allows ends the job as it starts.
    ResetAtLast: "9" "R10",
    /// A job that has started its last round and waits for workers ends by the reset limit.
    ResetForShortage: "9" "R10",
    /// A job that has started its last round ends by the reset limit if not all members succeed.
    ResetForFailure: "9" "R10",
    /// Rounds after a restart are not counted.
    ResetsForgotten: "9",
    /// Only rounds after a failure are counted.
    ResetsOfFailures: "9",

    // Removed worker.
    /// The exit code of a removed worker counts.
    RemovedFails: "10" "5" "6",
    /// A removed worker gets SIGTERM together with the stop message, and not only after the grace.
    RemovedSignalled: "10",
    /// A removed worker that does not end is never signalled.
    RemovedLeftAlone: "10" "R9",

    // Groups: how one starts.
    /// A group gets the coordinator of the previous group.
    GroupOldPort: "4",
    /// A group has more members than max_np.
    GroupOverMax: "R1",
    /// A group counts hosts whose agents are not connected.
    GroupUnconnected: "R1" "R9",
    /// A group does not wait until the previous group is reaped.
    GroupBesideLast: "R4" "R11",
    /// A group is started while the previous one may still train unobserved.
    GroupNoFence: "R11",
    /// A member that was asked to end with its group counts as gone.
    GroupToldIsGone: "R11",
    /// An agent that ends continues the processes that it stopped at the end of the lease.
    FrozenContinued: "R11",
    /// Starts of groups are not counted.
    GroupResetForgotten: "9" "R10",

    // Groups: what a failure leads to.
    /// A failed member is restarted alone, beside the others.
    GroupMemberAlone: "5" "R1",
    /// The failure of a member is ignored.
    GroupFailureIgnored: "5" "R9",
    /// A restart of a group is not counted.
    GroupRestartUncounted: "5" "R10",
    /// The loss of a host uses a restart of the group.
    GroupLossCounts: "5" "8",
    /// The exit of a member that was asked to end counts for the next group.
    GroupOldMemberFails: "5" "10",
    /// A failure after the first success restarts the group.
    GroupRestartsAtEnd: "5" "R10",
    /// The first member that succeeds counts as the success of its group.
    GroupFirstSuccess: "5" "R10",
    /// The success of a group after a restart counts as incomplete.
    GroupPastFailureCounts: "5" "R10",
    /// In mode auto the last failure ends the job at once.
    GroupVerdictHasty: "5" "R10",
    /// In mode auto the verdict on the last failure never comes.
    GroupVerdictNever: "5" "R9",

    // Groups: what a change leads to.
    /// A growth starts processes beside the running ones.
    GroupGrowsAlone: "3" "R1",
    /// In mode auto a growth does not wait for workers to attach.
    GroupGrowsEarly: "3",
    /// A group never grows.
    GroupNeverGrows: "3" "R6",
    /// A group continues with members whose slots are gone.
    GroupKeepsRemoved: "3" "R6",
    /// A group leaves a draining host at once, even when too few others are available.
    GroupDrainImpatient: "7",
    /// A group never leaves a draining host that it needs.
    GroupDrainNeverDue: "7" "R6",
    /// The attach of a worker is ignored.
    GroupAttachIgnored: "R9",
    /// Groups before the first worker has attached count as rounds.
    GroupsAreRounds: "9" "R10",
    /// A script must come to run() within the start timeout.
    GroupStartTimeout: "R9" "R10",

    // R3: what is stale changes nothing.
    /// A repeated answer to a plan counts twice. The number of its report does not refuse it either.
    RepeatedReady: "R3",
    /// An answer to an older plan counts for the current one.
    StaleReady: "R3",
    /// A count for an older hold counts for the current one.
    StaleCount: "R3",
    /// A repeated report that a worker waits always counts.
    RepeatedWaiting: "R3",
    /// A report over a replaced connection counts.
    StaleConnection: "R3",

    // R4: one process a slot.
    /// An agent obeys every command to start a process, even a repeated one.
    RepeatedSpawn: "R4" "R3",
    /// A slot is free when its process is lost, and not only when the process is reaped.
    FreeAtLoss: "R4",
    /// The processes of a host's next agent reuse the generations of its first.
    GenerationAgain: "R4" "R3",

    // R5: no round with what may not be used.
    /// The loss of a slot while a round is formed is noticed too late.
    LateRemoval: "R5",
    /// The loss of a slot at the time of the last answer is not checked before the round starts.
    StartsUnchecked: "R5",
    /// Slots of a draining host are used.
    DrainingUsed: "R5" "7",
    /// Slots of a host that is out are used.
    OutUsed: "R5" "6",

    // R6: a change reaches the workers that it concerns.
    /// Members of a round that trains stay on slots that are gone.
    RemovalUnnoticed: "R6" "3",
    /// Newcomers are only checked when another event happens.
    GrowthUnscheduled: "R6" "3",

    // A newcomer is admitted when it reaches the round.
    /// Newcomers are admitted without a probe.
    NewcomerUnasked: "newcomers",
    /// Newcomers are admitted whatever their probe shows.
    ProbeIgnored: "newcomers",
    /// An answer to an older probe counts for the current one.
    StaleProbe: "newcomers" "R3",
    /// The wait for the result of a probe has no end.
    ProbeWithoutEnd: "newcomers" "R9",

    // The host that is blamed for a data path that stays cut.
    /// The first host that cannot reach another is blamed, not the one that cannot reach the most.
    BlameFirst: "blame",
    /// The host that cannot reach the fewest others is blamed.
    BlameAccuser: "blame",
    /// No host is blamed.
    BlameNever: "blame" "R9",
    /// A proven host that a newcomer cannot reach is blamed.
    BlameProven: "blame",
    /// A newcomer is blamed for a host that another proven host cannot reach either.
    BlameNewcomer: "blame",
    /// A proven host is blamed for the first fruitless round.
    BlameAtOnce: "blame",
    /// A failure explains a round that broke long before it.
    LateExplains: "blame",
    /// The hosts that a worker could not reach are not reported.
    UnreachableUntold: "blame",

    // R9: the job ends.
    /// A second failure while a round is formed is ignored.
    SecondFailure: "R9",
    /// The elastic timeout never comes.
    ElasticTimeoutNever: "R9" "R10",
    /// The elastic timeout comes after half of its time.
    ElasticTimeoutEarly: "R9" "R10",
    /// The elastic timeout ignores first starts that are within their own time.
    FirstStartHurried: "R9" "R10",
    /// A job that waits for np workers ends at the elastic timeout, even if min_np are available.
    SettlesNever: "R9" "R10",
    /// Each change of the slots restarts the elastic timeout.
    ShortageRestarts: "R9",
    /// The job waits for np workers without a limit.
    NeverSettles: "R9",
    /// A process that hangs at its start is never stopped.
    HungStartKept: "R9" "R6",
    /// A slot that was used once is never filled again.
    NeverRefilled: "R9" "R6",
    /// A worker without heartbeats is not noticed.
    SilenceUnnoticed: "R9",
    /// A survivor that does not come back is never ended.
    ReturnWithoutEnd: "R9",
    /// The cooldown of a slot has no end.
    SlotOutForever: "R9" "6",

    // Agents are launched in batches.
    /// All agents are launched at once.
    LaunchesUnlimited: "launches",
    /// Launches that hang block the launches of other hosts.
    LaunchesStuck: "launches" "R9",
    /// The end of a batch is only noticed when another event happens.
    LaunchesUnscheduled: "launches" "R9",

    // R10: one outcome, and the right one.
    /// The last failure is named as the first.
    LastNamed: "R10",
    /// The exit of the first failure is not recorded.
    FailureWithoutExit: "R10",
    /// The exit of another agent's process is recorded for the first failure.
    ExitOfAnother: "R10",

    // R11: one round trains at a time.
    /// A round is started while another may still train unobserved.
    NoFence: "R11",
    /// The fence has half of its length.
    ShortFence: "R11",
    /// An agent without a driver never ends its workers.
    OrphansTrainOn: "R11" "R9",
    /// The lease counts from when an answer arrives, not from when its heartbeat was sent.
    LateBeat: "R11",

    // R12: the base is the newest complete commit.
    /// Only members are asked for the base.
    MembersOnly: "R12",
    /// A commit that a later start made void counts as a base.
    VoidCommit: "R12",
    /// A commit that the start before the last made void counts as a base.
    VoidForgotten: "R12",
    /// The agent that keeps the base is dismissed before the base is fetched.
    KeeperDismissed: "R12" "7",
    /// An agent answers a plan while its workers still run to the last boundary.
    EarlyAnswer: "R12" "R11" "4",

    /// The job does not wait for hosts that may hold newer commits.
    NewerNotAwaited: "R12",
    /// The wait for hosts that may hold newer commits has no end.
    NewerAwaitedLong: "R9" "R12",
    /// A round whose commits are unreachable counts as one without a commit.
    UnknownIsFruitless: "R9",

    // R13: a worker that trains has seen the base.
    /// A round begins with the state of a process that has fetched its base but never restored it.
    UnseenBase: "R13",
    /// The live state counts as that of the base, whatever it was before.
    NoRestore: "R13" "W2",

    // A state that is divided among workers. R14: what a worker begins with. R15: what it writes over.
    /// The base is the newest commit that is held, whether or not it is complete.
    IncompleteBase: "R12" "R14",
    /// Shards of two layouts complete each other.
    LayoutIgnored: "R12" "R14",
    /// An older commit is named for one member only, whatever shard it is.
    OlderOfOneOnly: "R12",
    /// Of the shards of dead processes one is kept, as the one copy of a whole state is.
    DeadShardForgotten: "R12",
    /// A job begins anew although parts of a commit with steps are held.
    BeginsAnewIncomplete: "anew" "R12",
    /// A worker seals its first shard of a round under the id of the base.
    SealsUnderBase: "R14",
    /// A worker trains before all members have sealed their first shard. The shell makes this mistake.
    NoBarrierAtFirst: "R14",
    /// A worker commits before all members have sealed the commit before. The shell makes this mistake.
    NoBarrierAtCommit: "R15",
    /// A worker enters the barrier of a commit before it has sealed its commit before, which is still copied. The shell makes this
    /// mistake.
    SealedBehindBarrier: "R15",
    /// Training changes what an asynchronous commit still copies, so that it has the state of its seal. The shell makes this
    /// mistake.
    CopiedTooLate: "R12" "R14" "R7",
    /// A worker leaves its round before it has sealed what it copies, and seals it later. The shell makes this mistake.
    SealedAfterLeave: "W4",
    /// A worker keeps a void commit at the start of a round, and writes its next one over the base.
    VoidNotDiscarded: "R15",
    /// A worker drops its shard of the base before all members have read it.
    BaseDropped: "R15",
    /// The host of a shard of the base is released before all members have sealed their first commit.
    ShardDismissed: "R12" "7",
    /// A member that holds nothing shows that nobody holds the base of a divided state.
    BaseGivenUp: "R12" "R10",

    // Replica groups of a fixed size. R18: groups are full. R19: survivors keep their shards, and few groups are broken.
    /// Workers have their seats in the order of ranks.
    SeatByRank: "R19",
    /// Survivors of a group that has lost a worker count as newcomers.
    SurvivorMoved: "R19",
    /// A round has a multiple of the size that is asked for, and not of the size of a group.
    HalfGroup: "R18",
    /// A survivor takes another shard although a newcomer could.
    SpareLeftIdle: "R19",

    // W5: what reset callbacks see, and what they change.
    /// Reset callbacks see the state that a failure has left behind.
    CallbacksSeeTorn: "W5" "W2",
    /// Reset callbacks of rank 0 see an older commit than the one with which the round begins.
    CallbacksSeeOlder: "W5",
    /// The changes of reset callbacks are lost.
    CallbacksUncounted: "W5" "R13",

    // The durable store.
    /// A durable commit is loaded although it is void.
    VoidStored: "R12",
    /// A durable commit is loaded although its bytes are not those that were written. The shell makes this mistake.
    DamagedLoaded: "R8",
    /// The durable store is not read although all memory is lost.
    StoreIgnored: "R12",

    // Replicas.
    /// A replica changes between the answer to a plan and the start of the round.
    ReplicaInPlan: "R12",
    /// A replica of a void commit takes the place of a valid one.
    VoidReplica: "R12",
    /// Hosts that keep replicas are not asked for them.
    ReplicaNotAsked: "R12",
    /// No replica is made.
    NeverReplicated: "R12",
    /// The copies of a complete cut are given up before those of the next one are complete.
    CutDroppedEarly: "R16",
    /// A host copies the newest shards of others, and not those of the cut.
    CutsMixed: "R16",
    /// A host copies its own shards, or those of another host of its machine.
    ReplicaOnSameMachine: "R16",
    /// The shards of a host are copied by none.
    HostNotFollowed: "R16",
    /// A host gives up its replica at the start of a round, before another commit is in its memory.
    ReplicaGivenUp: "replicas",
    /// A member counts as a host that keeps commits before it has one.
    NewcomerHolds: "replicas",

    // The boundary.
    /// A held worker passes the boundary before it knows K.
    HoldPassed: "R6" "R11",
    /// A worker leaves at a boundary before K.
    LeaveEarly: "R6",
    /// A worker passes boundaries beyond its lease.
    LeasePassed: "R11",

    // Agents that come back with their workers.
    /// An agent obeys a driver of an older epoch than the one that it has obeyed last.
    OldEpochAdopted: "R3" "returns",
    /// The reports that no driver has acknowledged are lost with the connection.
    UnacknowledgedDropped: "R9" "returns",
    /// Each failed member of a group that a later driver does not know uses a restart.
    GroupFailuresCount: "5" "R10",
    /// An agent does not say that a process has ended because it was told to.
    StopUntold: "R10" "returns",
    /// A repeated report is applied again.
    ReportsRepeated: "R3" "returns",
    /// Workers of a host that is out of reach are planned.
    AwayIsUsable: "R9" "returns",
    /// A host whose connection ends is given up at once, with its workers.
    AwayIsLost: "returns",
    /// Hosts of which the driver hears nothing count as silent, although it hears of no other host either.
    OutageIsSilence: "returns",
    /// A group that is over goes on where its host was out of reach.
    OldGroupStays: "R11" "returns",

    // The end of the driver.
    /// The driver exits while its agents still end their workers.
    ExitsEarly: "R10",
    /// The driver waits without end for agents that do not end in time.
    ShutdownWaits: "R9",
    /// Agents that do not end in time are given up without a kill command.
    NeverKilled: "R10",

    // W2 and W4: the commits of a worker, and its report of how it left.
    /// A commit is granted although an operation of the round was cut short.
    HalfCommit: "W4",
    /// A commit is refused in a round that is over elsewhere, although no operation of this process was cut short.
    AbortedCommitRefused: "W4",
    /// A failed operation does not end the round for a worker.
    FailureUnnoted: "W1" "W4",
    /// Two commits of a round have one id.
    CommitIdReused: "W2" "R12",
    /// Without a base all returning members make commit 0 of the round, each of its own state.
    FirstByAll: "W2" "R12",
    /// A worker assumes that rank 0 holds the same as itself.
    RootNotFollowed: "W2" "R12",
    /// Training does not count as a change of the live state.
    TrainUnnoted: "W2" "R13",

    /// The end of a round is returned only once.
    InterruptOnce: "W1",
    /// A stop that arrives in a round ends only that round.
    StopInRoundForgotten: "W1" "10",

    // The messages of a worker to its agent.
    /// A worker that was asked to stop does not announce itself again.
    StopUnannounced: "R9",

    // R7 and R8: the ledger.
    /// A commit holds the ledger of the agreement before its own.
    LedgerOfCommitBefore: "R8",
    /// A commit is restored without its ledger, so the data begins anew.
    LedgerNotRestored: "R8",
    /// A commit holds the rows that other workers have processed, and not those of this worker.
    LedgerLacksOwn: "R8",
    /// A range that moves to another worker also stays with the former one.
    RangeTwice: "R7",
    /// A range that should move is assigned to no worker.
    RangeLost: "R7",
    /// A round in order "deterministic" continues one step later than its commit.
    StripeSkipped: "R7",

    // A later driver that resumes the run.
    /// A later driver plans rounds with numbers that an earlier one has used.
    RoundReused: "R3" "T1",
    /// A later driver goes on with a round of which a member is missing.
    PartialRoundAdopted: "T1",
    /// A later driver forgets the failures of hosts and slots.
    BlacklistForgotten: "R5" "5",
    /// A later driver starts processes on hosts whose agents may come back with workers.
    StartsBeforeAdoption: "R4" "T2",
}
