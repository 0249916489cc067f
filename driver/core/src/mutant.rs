//! Mistakes that others made, that were once here, or that a change could bring: the simulation proves with
//! them that it would see each. They exist only with the feature `mutants`, which nothing that is shipped
//! turns on; without it [`planted`] is `false` at compile time.
//!
//! The simulation plants a mistake for the current thread: the machines are pure, so a run is the work of one thread. A real
//! process has it planted for all of its threads, by name: `make wheel-mutants`.
//! Each names the rules that it breaks: a number is an elastic rule of the contract, `R` and a number an invariant of the
//! job, `W` and a number one of a worker ([`crate::worker`]).

#[cfg(feature = "mutants")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Plants a mistake for this thread, or none.
#[cfg(feature = "mutants")]
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// The mistake of all threads of this process.
#[cfg(feature = "mutants")]
static EVERYWHERE: std::sync::OnceLock<Mutant> = std::sync::OnceLock::new();

/// Plants the mistake of this name for all threads of this process, once. `false` if there is none of that name.
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

macro_rules! mutants {
    ($($(#[doc = $doc:literal])+ $name:ident: $($breaks:literal)+,)+) => {
        /// A mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// The rules and invariants that it breaks.
            pub const fn breaks(self) -> &'static [&'static str] {
                match self {
                    $(Self::$name => &[$($breaks),+],)+
                }
            }
        }
    };
}

mutants! {
    // Hosts.
    /// A change of hosts before the first worker has joined is lost.
    EarlyChange: "1" "R6",
    /// A host that is missing from one list is removed.
    MissingOnce: "1",
    /// A host that is missing from an answer that is not complete counts as missing.
    PartLeavesOut: "1",
    /// A host that one of two sources leaves out is removed.
    OneSourceRemoves: "1",
    /// A source that fails loses its hosts.
    FailureRemoves: "1",
    /// Slots that a source has inferred count, whatever the agent finds.
    InferredSlots: "1",
    /// Hosts stand in the order of their names.
    OrderByName: "1" "R2",
    /// A poll that fails later ends the job as the first would.
    LaterPollFatal: "1" "R10",
    /// A host that is reported gone is kept until it is missing twice.
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
    /// cross_size counts all hosts, whether they have that local rank or not.
    CrossOfAllHosts: "2" "R1",
    /// All that wait are planned, also beyond max_np.
    MaxPassed: "2" "R1",
    /// One worker is enough for a round after the first.
    MinIgnored: "2" "R1",

    // Change.
    /// A waiting spare interrupts a round that has no room for it.
    SpareInterrupts: "3" "10",
    /// A draining host interrupts the round, though no member of it is there.
    IdleDrainInterrupts: "3",
    /// A host with fewer slots keeps those that it had.
    SlotsKept: "3" "R5",
    /// A change is always said to be a mixed one.
    AlwaysMixed: "3",

    // Interrupt.
    /// The common boundary is that of the host which counted last.
    BoundaryOfLast: "4" "R6",
    /// A graceful change aborts the round where it stands.
    ChangeAborts: "4",
    /// A hold is not taken back when the first member has finished.
    HoldKept: "4" "5",
    /// Workers that do not reach the boundary are waited for without end.
    InterruptWithoutEnd: "4" "R9",

    // Registry.
    /// A spare that joins as the job ends leads to one more round.
    LateSpare: "5" "R10",
    /// The first success is the success of all.
    FirstSuccessIsAll: "5" "R10",
    /// A worker that fails after it has returned from run() has succeeded.
    FailureAfterFinish: "5" "R10",
    /// A failure in an earlier round makes a success one that is not of all.
    PastFailureCounts: "5" "R10",
    /// Members that failed in earlier rounds stay members.
    PastMembersStay: "5" "R10",
    /// The failure of a process that was in no round makes a success one that is not of all.
    OutsiderFailureCounts: "5" "R10",
    /// A round of fewer than np members is no success of all.
    FewerIsNotAll: "5" "R10",
    /// The first member that ends well ends the job as one of which not all succeed.
    NotAllHasty: "5" "R10",
    /// That all members have ended is noticed by the exit timeout only.
    NotAllNever: "5" "R10",
    /// Members that went with their hosts or were told to stop have succeeded if no other has failed.
    LostIsSuccess: "5" "R10",
    /// A worker that went with its host has failed by itself.
    LostIsFailed: "5" "8" "R10",
    /// A worker that failed by itself went with its host.
    FailedIsLost: "5" "R10",
    /// A worker that was told to stop has failed by itself.
    StoppedIsFailed: "5" "10" "R10",
    /// The exit timeout comes at half of its time.
    ExitTimeoutEarly: "5" "R10",
    /// The exit timeout never ends.
    ExitTimeoutNever: "5" "R9",
    /// One restart more than is allowed.
    RestartMore: "5" "R10",
    /// One restart less than is allowed.
    RestartLess: "5" "R10",
    /// What failed in earlier rounds without a commit is forgotten.
    RelapsesForgotten: "5" "R9",
    /// One round in which members fail by themselves shows that it is the program.
    RelapseAtOnce: "5" "R10",
    /// A host of which a signal has ended a process shows that it is the program.
    RelapseBySignal: "5" "R10",

    // Blacklist.
    /// A cooldown that ends while the job waits for slots is not acted upon.
    CooldownWhileWaiting: "6" "R9",
    /// All cooldowns are as long as the first.
    CooldownNeverGrows: "6",
    /// A cooldown grows to eight times what it may be at most.
    CooldownUncapped: "6",
    /// Failures of one episode count each.
    EpisodeCountsEach: "6",
    /// An episode goes on when the next round begins.
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
    /// A draining host is never left at its deadline.
    DrainNeverDue: "7" "R6",
    /// A draining host is left at once, also when too few could go on.
    DrainImpatient: "7",
    /// The loss of a draining host is a failure.
    DrainIsFailure: "7" "6",
    /// A list takes back what a notice said.
    NoticeTakenBack: "7" "R5",
    /// A draining host is never given free.
    NeverDrained: "7",
    /// A mere risk drains a host.
    RiskDrains: "7" "3",

    // Old and new.
    /// That committed state is lost is not noticed.
    LossUnnoticed: "8" "R12",
    /// State that was never there is lost.
    LossImagined: "8" "R10",
    /// An agent forgets the commits of dead processes.
    DeadForgotten: "8" "R12",
    /// An agent forgets the commits that equal the base.
    EqualForgotten: "8" "R12",
    /// Nobody is named who keeps the base.
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
    /// A removed worker is signalled and not told.
    RemovedSignalled: "10",
    /// A removed worker that does not end is left alone.
    RemovedLeftAlone: "10" "R9",

    // Groups: how one starts.
    /// A group has the coordinator of the one before.
    GroupOldPort: "4",
    /// A group has more members than max_np.
    GroupOverMax: "R1",
    /// A group counts hosts whose agents are not connected.
    GroupUnconnected: "R1" "R9",
    /// A group does not wait until the one before is reaped.
    GroupBesideLast: "R4" "R11",
    /// A group is started while the one before may train where nobody hears of it.
    GroupNoFence: "R11",
    /// Who was told to end with its group is taken to be gone.
    GroupToldIsGone: "R11",
    /// An agent that ends continues what it had stopped at the end of the lease.
    FrozenContinued: "R11",
    /// Starts of groups are not counted.
    GroupResetForgotten: "9" "R10",

    // Groups: what a failure leads to.
    /// A member that failed is started alone, beside the others.
    GroupMemberAlone: "5" "R1",
    /// A member that failed is overlooked.
    GroupFailureIgnored: "5" "R9",
    /// A restart of a group is not counted.
    GroupRestartUncounted: "5" "R10",
    /// The loss of a host uses a restart of the group.
    GroupLossCounts: "5" "8",
    /// What a member ends with that was told to end counts for the next group.
    GroupOldMemberFails: "5" "10",
    /// A failure after the first success restarts the group.
    GroupRestartsAtEnd: "5" "R10",
    /// The first member that succeeds is the success of its group.
    GroupFirstSuccess: "5" "R10",
    /// A group that succeeds after a restart has not all succeeded.
    GroupPastFailureCounts: "5" "R10",
    /// In mode auto the last failure ends the job at once.
    GroupVerdictHasty: "5" "R10",
    /// In mode auto the last failure waits for ever.
    GroupVerdictNever: "5" "R9",

    // Groups: what a change leads to.
    /// A growth starts processes beside those that run.
    GroupGrowsAlone: "3" "R1",
    /// In mode auto a growth does not wait for workers to attach.
    GroupGrowsEarly: "3",
    /// A group never grows.
    GroupNeverGrows: "3" "R6",
    /// A group goes on with members whose slots are gone.
    GroupKeepsRemoved: "3" "R6",
    /// A group leaves a draining host at once, also when too few could go on.
    GroupDrainImpatient: "7",
    /// A group never leaves a draining host that it needs.
    GroupDrainNeverDue: "7" "R6",
    /// That a worker has attached is overlooked.
    GroupAttachIgnored: "R9",
    /// Groups before the first worker has attached count as rounds.
    GroupsAreRounds: "9" "R10",
    /// A script must come to run() within the start timeout.
    GroupStartTimeout: "R9" "R10",

    // R3: what is stale changes nothing.
    /// An answer to a plan that comes twice counts twice.
    RepeatedReady: "R3",
    /// An answer to an older plan counts for the current one.
    StaleReady: "R3",
    /// A count for an older hold counts for the current one.
    StaleCount: "R3",
    /// A report that a worker waits counts whenever it comes.
    RepeatedWaiting: "R3",
    /// A report over a connection that was replaced counts.
    StaleConnection: "R3",

    // R4: one process a slot.
    /// An agent starts whatever it is told to, also for the second time.
    RepeatedSpawn: "R4" "R3",
    /// A slot is free when its process is lost, and not when it is reaped.
    FreeAtLoss: "R4",
    /// The processes of a host's next agent have the generations of its first.
    GenerationAgain: "R4" "R3",

    // R5: no round with what may not be used.
    /// A slot that goes while a round is formed is noticed too late.
    LateRemoval: "R5",
    /// A slot that goes when the last answer comes is not looked at before the round starts.
    StartsUnchecked: "R5",
    /// A draining host gives slots.
    DrainingUsed: "R5" "7",
    /// A host that is out gives slots.
    OutUsed: "R5" "6",

    // R6: a change reaches whom it concerns.
    /// Members of a round that trains stay on slots that are gone.
    RemovalUnnoticed: "R6" "3",
    /// Newcomers are looked at only when something else happens.
    GrowthUnscheduled: "R6" "3",

    // A newcomer is admitted when it reaches the round.
    /// Newcomers are admitted unasked.
    NewcomerUnasked: "newcomers",
    /// Newcomers are admitted whatever they reach.
    ProbeIgnored: "newcomers",
    /// An answer to an older probe counts for the current one.
    StaleProbe: "newcomers" "R3",
    /// A probe that is not answered is waited for without end.
    ProbeWithoutEnd: "newcomers" "R9",

    // Who is blamed for a data path that stays cut.
    /// The first host that cannot reach another is blamed, not the one that most cannot reach.
    BlameFirst: "blame",
    /// Who cannot reach fewest others is blamed.
    BlameAccuser: "blame",
    /// Nobody is blamed.
    BlameNever: "blame" "R9",
    /// A proven host that a newcomer cannot reach is blamed.
    BlameProven: "blame",
    /// A newcomer is blamed for a host that another proven one cannot reach either.
    BlameNewcomer: "blame",
    /// A proven host is blamed for the first round that comes to nothing.
    BlameAtOnce: "blame",
    /// What a worker could not reach is not told.
    UnreachableUntold: "blame",

    // R9: the job ends.
    /// A second failure while a round is formed is overlooked.
    SecondFailure: "R9",
    /// The elastic timeout never comes.
    ElasticTimeoutNever: "R9" "R10",
    /// The elastic timeout comes at half of its time.
    ElasticTimeoutEarly: "R9" "R10",
    /// The elastic timeout does not wait for first starts that are within their time.
    FirstStartHurried: "R9" "R10",
    /// A job that has waited for np workers for the elastic timeout ends, also if min_np are there.
    SettlesNever: "R9" "R10",
    /// Each change of the slots begins the elastic timeout anew.
    ShortageRestarts: "R9",
    /// The job waits for np workers however long it takes.
    NeverSettles: "R9",
    /// A process that hangs at its start is left alone.
    HungStartKept: "R9" "R6",
    /// A slot that was used once is never filled again.
    NeverRefilled: "R9" "R6",
    /// A worker that does not beat is not noticed.
    SilenceUnnoticed: "R9",
    /// A survivor that does not come back is not ended.
    ReturnWithoutEnd: "R9",
    /// The cooldown of a slot has no end.
    SlotOutForever: "R9" "6",

    // R10: one outcome, and a true one.
    /// The last failure is named as the first.
    LastNamed: "R10",
    /// How the first failure ended is not completed.
    FailureWithoutExit: "R10",
    /// Another agent's exit completes the first failure.
    ExitOfAnother: "R10",

    // R11: one round trains at a time.
    /// A round is started while another may still train where nobody hears of it.
    NoFence: "R11",
    /// The fence is half as long as it must be.
    ShortFence: "R11",
    /// An agent without a driver never ends its workers.
    OrphansTrainOn: "R11" "R9",
    /// An answer to a beat counts from when it comes, not from when the beat was sent.
    LateBeat: "R11",

    // R12: the base is the newest complete commit.
    /// Only members are asked for the base.
    MembersOnly: "R12",
    /// What was made void by a later start counts as a base.
    VoidCommit: "R12",
    /// What was made void two starts ago counts as a base.
    VoidForgotten: "R12",
    /// The agent that keeps the base is sent away before anybody has fetched it.
    KeeperDismissed: "R12" "7",
    /// An agent answers a plan while its workers still run to the last boundary.
    EarlyAnswer: "R12" "R11" "4",

    /// Hosts that may hold newer commits are not waited for.
    NewerNotAwaited: "R12",
    /// Hosts that may hold newer commits are waited for without end.
    NewerAwaitedLong: "R9" "R12",
    /// A round whose commits are out of reach is taken for one that left none.
    UnknownIsFruitless: "R9",

    // R13: who trains has seen the base.
    /// A round begins with the state of a process that has fetched its base and never took it over.
    UnseenBase: "R13",
    /// The live state is taken for that of the base, whatever it was before.
    NoRestore: "R13" "W2",

    // W5: what reset callbacks see, and what they change.
    /// Reset callbacks see the state that a failure has left.
    CallbacksSeeTorn: "W5" "W2",
    /// Reset callbacks of rank 0 see an older commit than that which the round begins with.
    CallbacksSeeOlder: "W5",
    /// What reset callbacks change is lost.
    CallbacksUncounted: "W5" "R13",

    // The boundary.
    /// A held worker passes the boundary before it knows K.
    HoldPassed: "R6" "R11",
    /// A worker leaves at a boundary before K.
    LeaveEarly: "R6",
    /// A worker passes boundaries beyond its lease.
    LeasePassed: "R11",

    // The end of the driver.
    /// The driver exits while its agents still end their workers.
    ExitsEarly: "R10",
    /// Agents that do not end in time are waited for.
    ShutdownWaits: "R9",
    /// Agents that do not end in time are given up without having been told to kill.
    NeverKilled: "R10",

    // W2 and W4: what a worker commits, and what it says of how it left.
    /// A commit is granted although an operation of the round was cut short.
    HalfCommit: "W4",
    /// A commit is refused in a round that is over elsewhere, though nothing of this process was cut short.
    AbortedCommitRefused: "W4",
    /// A failed operation does not end the round for a worker.
    FailureUnnoted: "W1" "W4",
    /// Two commits of a round have one id.
    CommitIdReused: "W2" "R12",
    /// All members that come back make commit 0 of a round that has no base, each of its own state.
    FirstByAll: "W2" "R12",
    /// A worker takes what it holds itself for what rank 0 holds.
    RootNotFollowed: "W2" "R12",
    /// Training is not taken for a change of the live state.
    TrainUnnoted: "W2" "R13",

    /// What has ended a round is said once.
    InterruptOnce: "W1",
    /// That a process was told to stop in a round ends that round only.
    StopInRoundForgotten: "W1" "10",

    // What a worker tells its agent.
    /// A worker that is told to stop does not come back to say that it heard it.
    StopUnannounced: "R9",

    // R7 and R8: the ledger.
    /// A commit holds the ledger of the agreement before its own.
    LedgerOfCommitBefore: "R8",
    /// A commit is restored without its ledger: the data begins anew.
    LedgerNotRestored: "R8",
    /// A commit holds what the others have processed, and not what this worker has.
    LedgerLacksOwn: "R8",
    /// What moves to another worker stays with its former one, too.
    RangeTwice: "R7",
    /// A range of what moves is given to nobody.
    RangeLost: "R7",
    /// A round in order "deterministic" goes on a step further than its commit.
    LaneSkipped: "R7",
}
