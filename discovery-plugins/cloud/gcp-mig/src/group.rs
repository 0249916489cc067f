//! The name of a group: project, place and name. Pure.

use std::fmt;

use elasticrun_plugin_sdk::PluginError;

/// A managed instance group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) project: String,
    pub(crate) place: Place,
    pub(crate) name: String,
}

/// Where a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Zone(String),
    Region(String),
}

impl Group {
    /// Reads `PROJECT/ZONE/NAME` or `PROJECT/REGION/NAME`. A zone's name is its region's and a letter.
    pub(crate) fn read(text: &str) -> Result<Self, PluginError> {
        let bad = || {
            PluginError::bad_config(format!(
                "group: {text:?} is not PROJECT/ZONE/NAME or PROJECT/REGION/NAME, such as lab/europe-west4-a/gpus"
            ))
        };
        let parts: Vec<_> = text.split('/').collect();
        let [project, place, name] = parts[..] else {
            return Err(bad());
        };
        // A project may belong to a domain: example.com:lab.
        let is_word = |word: &str, more: &str| {
            let fits = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || more.contains(letter)
            };
            !word.is_empty() && word.chars().all(fits)
        };
        if !is_word(project, "-.:") || !is_word(place, "-") || !is_word(name, "-") {
            return Err(bad());
        }
        let last = place.rsplit('-').next().unwrap_or_default();
        let is_zone = last.len() == 1 && last.bytes().all(|byte| byte.is_ascii_lowercase());
        let place = place.to_owned();
        Ok(Self {
            project: project.to_owned(),
            place: if is_zone {
                Place::Zone(place)
            } else {
                Place::Region(place)
            },
            name: name.to_owned(),
        })
    }

    /// Its path behind `/compute/v1/`.
    pub(crate) fn path(&self) -> String {
        let Self {
            project,
            place,
            name,
        } = self;
        match place {
            Place::Zone(zone) => {
                format!("projects/{project}/zones/{zone}/instanceGroupManagers/{name}")
            }
            Place::Region(region) => {
                format!("projects/{project}/regions/{region}/instanceGroupManagers/{name}")
            }
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            project,
            place,
            name,
        } = self;
        match place {
            Place::Zone(zone) => write!(f, "{name} in zone {zone} of project {project}"),
            Place::Region(region) => write!(f, "{name} in region {region} of project {project}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_zone_or_a_region() {
        let path = |text| Group::read(text).unwrap().path();
        assert_eq!(
            path("lab/europe-west4-a/gpus"),
            "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus"
        );
        assert_eq!(
            path("example.com:lab/europe-west4/gpus"),
            "projects/example.com:lab/regions/europe-west4/instanceGroupManagers/gpus"
        );
    }

    #[test]
    fn what_is_no_group_is_refused_with_the_form() {
        for text in [
            "gpus",
            "lab/gpus",
            "lab//gpus",
            "lab/a/b/c",
            "lab/europe-west4-a/gpus?x=1",
            "lab/EU/gpus",
        ] {
            let error = Group::read(text).unwrap_err();
            assert!(
                error
                    .message
                    .starts_with(&format!("group: {text:?} is not PROJECT/ZONE/NAME")),
                "{error}"
            );
        }
    }
}
