//! Detects the cloud of a machine and the address of its metadata service.

use std::{env, fs, path::Path};

use hyper::Uri;

/// The address of the metadata service in every cloud.
const LINK_LOCAL: &str = "http://169.254.169.254";

/// The asset tag of every machine in Azure.
const AZURE_TAG: &str = "7783-7084-3265-9085-8269-3286-77";

/// The metadata services to poll.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clouds {
    pub(crate) ec2: Option<Uri>,
    pub(crate) gce: Option<Uri>,
    pub(crate) azure: Option<Uri>,
}

impl Clouds {
    /// The services of this machine.
    pub(crate) fn here() -> Self {
        Self::detect(Path::new("/sys/class/dmi/id"), |name| env::var(name).ok())
    }

    fn detect(dmi: &Path, variable: impl Fn(&str) -> Option<String>) -> Self {
        let starts_with = |file: &str, words: &str| {
            fs::read_to_string(dmi.join(file)).is_ok_and(|text| text.trim().starts_with(words))
        };
        let uri = |text: String| match text.parse::<Uri>() {
            Ok(uri) => Some(uri),
            Err(error) => {
                tracing::warn!(%text, %error, "not the address of a metadata service");
                None
            }
        };
        let endpoint = |name: &str, is_this_cloud: bool| {
            let configured = variable(name).filter(|text| !text.is_empty());
            configured.or_else(|| is_this_cloud.then(|| LINK_LOCAL.to_owned()))
        };
        let with_scheme = |text: String| {
            if text.contains("://") {
                text
            } else {
                format!("http://{text}")
            }
        };
        // The variable is that of the AWS SDKs.
        let is_disabled = variable("AWS_EC2_METADATA_DISABLED")
            .is_some_and(|text| text.eq_ignore_ascii_case("true"));
        Self {
            ec2: endpoint(
                "AWS_EC2_METADATA_SERVICE_ENDPOINT",
                starts_with("sys_vendor", "Amazon EC2"),
            )
            .filter(|_| !is_disabled)
            .and_then(uri),
            gce: endpoint(
                "GCE_METADATA_HOST",
                starts_with("product_name", "Google Compute Engine"),
            )
            .map(with_scheme)
            .and_then(uri),
            azure: endpoint(
                "ELASTICRUN_AZURE_IMDS",
                starts_with("chassis_asset_tag", AZURE_TAG),
            )
            .and_then(uri),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Clouds {
        let dmi = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dmi.path().join(name), text).unwrap();
        }
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Clouds::detect(dmi.path(), |name| {
            find(name).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn a_machine_of_no_cloud_has_no_service() {
        assert_eq!(with(&[("sys_vendor", "QEMU\n")], &[]), Clouds::default());
    }

    #[test]
    fn a_machine_of_a_cloud_has_its_service() {
        let link_local = Some(Uri::from_static("http://169.254.169.254/"));
        assert_eq!(with(&[("sys_vendor", "Amazon EC2\n")], &[]).ec2, link_local);
        let google = [("product_name", "Google Compute Engine\n")];
        assert_eq!(with(&google, &[]).gce, link_local);
        let tag = format!("{AZURE_TAG}\n");
        assert_eq!(with(&[("chassis_asset_tag", &tag)], &[]).azure, link_local);
    }

    #[test]
    fn a_variable_names_another_address_and_ec2_can_be_turned_off() {
        let clouds = with(
            &[],
            &[
                ("GCE_METADATA_HOST", "127.0.0.1:81"),
                ("ELASTICRUN_AZURE_IMDS", "http://127.0.0.1:82"),
            ],
        );
        assert_eq!(clouds.gce, Some(Uri::from_static("http://127.0.0.1:81")));
        assert_eq!(clouds.azure, Some(Uri::from_static("http://127.0.0.1:82")));
        let off = with(
            &[("sys_vendor", "Amazon EC2")],
            &[("AWS_EC2_METADATA_DISABLED", "true")],
        );
        assert_eq!(off.ec2, None);
    }
}
