//! The name of a group: project, location and name. Pure.

use std::fmt;

use elasticrun_plugin_sdk::PluginError;

/// A managed instance group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) project: String,
    pub(crate) location: Location,
    pub(crate) name: String,
}

/// The location of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    Zone(String),
    Region(String),
}

impl Group {
    /// Parses `PROJECT/ZONE/NAME` or `PROJECT/REGION/NAME`, or the URL that Google Cloud gives a group, whose path ends
    /// with `projects/PROJECT/zones/ZONE/instanceGroupManagers/NAME`. The name of a zone is that of its region and a
    /// letter.
    pub(crate) fn read(text: &str) -> Result<Self, PluginError> {
        let bad = || {
            PluginError::bad_config(format!(
                "group: {text:?} is not PROJECT/ZONE/NAME or PROJECT/REGION/NAME, such as lab/europe-west4-a/gpus"
            ))
        };
        let path = match text.split_once("/projects/") {
            Some((_, path)) => path,
            None => text.strip_prefix("projects/").unwrap_or(text),
        };
        let parts: Vec<_> = path.split('/').collect();
        let (project, location, name) = match parts[..] {
            [project, location, name]
            | [
                project,
                "zones" | "regions",
                location,
                "instanceGroupManagers" | "instanceGroups",
                name,
            ] => (project, location, name),
            _ => return Err(bad()),
        };
        // A project may belong to a domain: example.com:lab.
        let is_word = |word: &str, more: &str| {
            let fits = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || more.contains(letter)
            };
            !word.is_empty() && word.chars().all(fits)
        };
        if !is_word(project, "-.:") || !is_word(location, "-") || !is_word(name, "-") {
            return Err(bad());
        }
        let last = location.rsplit('-').next().unwrap_or_default();
        let is_zone = last.len() == 1 && last.bytes().all(|byte| byte.is_ascii_lowercase());
        let location = location.to_owned();
        Ok(Self {
            project: project.to_owned(),
            location: if is_zone {
                Location::Zone(location)
            } else {
                Location::Region(location)
            },
            name: name.to_owned(),
        })
    }
}

impl Location {
    /// Its name in the cloud.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Zone(name) | Self::Region(name) => name,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            project,
            location,
            name,
        } = self;
        match location {
            Location::Zone(zone) => write!(f, "{name} in zone {zone} of project {project}"),
            Location::Region(region) => write!(f, "{name} in region {region} of project {project}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_zone_or_a_region() {
        let shown = |text: &str| Group::read(text).unwrap().to_string();
        let zonal = "gpus in zone europe-west4-a of project lab";
        assert_eq!(shown("lab/europe-west4-a/gpus"), zonal);
        assert_eq!(
            shown("example.com:lab/europe-west4/gpus"),
            "gpus in region europe-west4 of project example.com:lab"
        );
        let whole = "projects/lab/zones/europe-west4-a/instanceGroupManagers/gpus";
        assert_eq!(shown(whole), zonal);
        let url = format!("https://www.googleapis.com/compute/v1/{whole}");
        assert_eq!(shown(&url), zonal);
    }

    #[test]
    fn an_invalid_group_is_refused_with_the_form() {
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
