//! Instances in EC2: addresses, state, tags.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use aws_sdk_ec2::types::{
    Filter, Instance as Ec2Instance, InstanceLifecycleType, InstanceStateName,
};
use elasticrun_plugin_sdk::PluginError;

use crate::{account::Account, error::classify};

/// How long an answer about a running instance is cached.
pub(crate) const MAX_AGE: Duration = Duration::from_secs(30);
/// The tag with the number of workers of an instance.
pub(crate) const SLOTS_TAG: &str = "elasticrun:slots";
/// The maximum number of values of a filter.
const IDS_PER_CALL: usize = 200;
const CALL: &str = "DescribeInstances";

/// An instance in EC2.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
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

/// The known instances, with the time of the answer.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    known: BTreeMap<String, (Instance, Instant)>,
}

impl Instances {
    /// The instance with that id, if EC2 knows it.
    pub(crate) fn get(&self, id: &str) -> Option<&Instance> {
        self.known.get(id).map(|(instance, _)| instance)
    }

    /// Queries instances of `ids` that are new, not running, or whose answer is old. Forgets all others.
    ///
    /// It queries by filter, so that an id that EC2 does not know is missing in the answer, and is no error.
    pub(crate) async fn refresh<'a>(
        &mut self,
        account: &Account,
        ids: impl Iterator<Item = &'a str>,
    ) -> Result<(), PluginError> {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.known);
        let mut to_query = Vec::new();
        for id in ids {
            match before.remove(id) {
                Some((instance, time)) if is_settled(&instance, now - time) => {
                    self.known.insert(id.to_owned(), (instance, time));
                }
                _ => to_query.push(id.to_owned()),
            }
        }
        for ids in to_query.chunks(IDS_PER_CALL) {
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
                    .map_err(|error| classify(CALL, &account.place, error))?;
                token = page
                    .next_token()
                    .filter(|token| !token.is_empty())
                    .map(str::to_owned);
                let found = page.reservations().iter().flat_map(|some| some.instances());
                for instance in found {
                    if let Some(id) = instance.instance_id() {
                        self.known.insert(id.to_owned(), (read(instance), now));
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

/// Whether an answer is still valid: the instance is terminated, or it is running and the answer is recent.
fn is_settled(instance: &Instance, age: Duration) -> bool {
    match instance.state {
        InstanceStateName::Terminated => true,
        InstanceStateName::Running => age < MAX_AGE,
        _ => false,
    }
}

fn read(instance: &Ec2Instance) -> Instance {
    let owned = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    let state = instance.state().and_then(|state| state.name()).cloned();
    let tag = |name: &str| {
        let tags = instance.tags().iter();
        let found = tags
            .filter(|tag| tag.key() == Some(name))
            .find_map(|tag| tag.value());
        found.map(str::to_owned)
    };
    Instance {
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
