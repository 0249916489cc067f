//! What EC2 says of the instances: addresses, state, tags.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use aws_sdk_ec2::types::{Filter, Instance, InstanceLifecycleType, InstanceStateName};
use elasticrun_plugin_sdk::PluginError;

use crate::{account::Account, failure};

/// How long an answer about a running instance is believed.
pub(crate) const FRESH: Duration = Duration::from_secs(30);
/// The tag that says how many workers an instance takes.
pub(crate) const SLOTS_TAG: &str = "elasticrun:slots";
/// The most values that a filter takes.
const IDS_PER_CALL: usize = 200;
const CALL: &str = "DescribeInstances";

/// An instance, as EC2 sees it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) state: InstanceStateName,
    pub(crate) private: Option<String>,
    pub(crate) public: Option<String>,
    pub(crate) ipv6: Option<String>,
    pub(crate) kind: Option<String>,
    pub(crate) zone: Option<String>,
    pub(crate) spot: bool,
    /// The value of [`SLOTS_TAG`].
    pub(crate) slots: Option<String>,
}

/// The instances that were asked for, with the time of the answer.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    known: BTreeMap<String, (Machine, Instant)>,
}

impl Machines {
    /// The instance of that id, if EC2 knows it.
    pub(crate) fn get(&self, id: &str) -> Option<&Machine> {
        self.known.get(id).map(|(machine, _)| machine)
    }

    /// Asks for those of `ids` that are new, do not run, or were not asked for lately; forgets all others.
    ///
    /// It asks by filter: an id that EC2 does not know yet (or any more) is then missing from the answer,
    /// and does not turn it into an error.
    pub(crate) async fn refresh<'a>(
        &mut self,
        account: &Account,
        ids: impl Iterator<Item = &'a str>,
    ) -> Result<(), PluginError> {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.known);
        let mut asked = Vec::new();
        for id in ids {
            match before.remove(id) {
                Some((machine, at)) if is_settled(&machine, now - at) => {
                    self.known.insert(id.to_owned(), (machine, at));
                }
                _ => asked.push(id.to_owned()),
            }
        }
        for ids in asked.chunks(IDS_PER_CALL) {
            let filter = Filter::builder()
                .name("instance-id")
                .set_values(Some(ids.to_vec()))
                .build();
            let mut token = None;
            loop {
                let page = account
                    .ec2
                    .describe_instances()
                    .filters(filter.clone())
                    .set_next_token(token)
                    .send()
                    .await
                    .map_err(|error| failure::of(CALL, &account.place, error))?;
                token = page
                    .next_token()
                    .filter(|token| !token.is_empty())
                    .map(str::to_owned);
                let found = page.reservations().iter().flat_map(|some| some.instances());
                for instance in found {
                    if let Some(id) = instance.instance_id() {
                        self.known.insert(id.to_owned(), (machine(instance), now));
                    }
                }
                if token.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Whether nothing new is expected of it: it is gone for good, or it runs and was asked for lately.
fn is_settled(machine: &Machine, age: Duration) -> bool {
    match machine.state {
        InstanceStateName::Terminated => true,
        InstanceStateName::Running => age < FRESH,
        _ => false,
    }
}

fn machine(instance: &Instance) -> Machine {
    let owned = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let state = instance.state().and_then(|state| state.name()).cloned();
    let tag = |name: &str| {
        let tags = instance.tags().iter();
        let found = tags
            .filter(|tag| tag.key() == Some(name))
            .find_map(|tag| tag.value());
        found.map(str::to_owned)
    };
    Machine {
        state: state.unwrap_or(InstanceStateName::Pending),
        private: owned(instance.private_ip_address()),
        public: owned(instance.public_ip_address()),
        ipv6: owned(instance.ipv6_address()),
        kind: instance
            .instance_type()
            .map(|kind| kind.as_str().to_owned()),
        zone: owned(
            instance
                .placement()
                .and_then(|place| place.availability_zone()),
        ),
        spot: instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot),
        slots: tag(SLOTS_TAG),
    }
}
