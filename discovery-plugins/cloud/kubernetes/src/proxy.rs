//! Chooses the proxy to a cluster. Pure.
//!
//! The rules are those of kubectl: `proxy-url` of the cluster, else the variables for its scheme, if `NO_PROXY` does not name
//! the cluster. The crate `kube` compares `NO_PROXY` with the proxy in place of the cluster, so its choice is not used.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// The proxy to the cluster at a URL. None for a direct connection.
///
/// # Errors
/// Where a proxy is named by a text that is no URL. The text may hold a password, so it is not in the error.
pub(crate) fn choose(
    kubeconfig: &Kubeconfig,
    cluster: &Uri,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, &'static str> {
    let first = |names: [&str; 2]| {
        let mut values = names.iter().filter_map(|name| variable(name));
        values.find(|value| !value.is_empty())
    };
    if let Some(url) = of_cluster(kubeconfig).filter(|url| !url.is_empty()) {
        let uri = url.parse().map(Some);
        return uri.map_err(|_| "proxy-url of the kubeconfig");
    }
    let given = match cluster.scheme_str() {
        Some("http") => first(["HTTP_PROXY", "http_proxy"]),
        _ => first(["HTTPS_PROXY", "https_proxy"]),
    };
    let Some(url) = given else { return Ok(None) };
    let url = match url.contains("://") {
        true => url,
        false => format!("http://{url}"),
    };
    let excepted = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let rules = Matcher::builder().all(url.as_str()).no(excepted).build();
    if rules.intercept(cluster).is_none() {
        return Ok(None);
    }
    url.parse().map(Some).map_err(|_| "the proxy variable")
}

/// `proxy-url` of the current context's cluster.
fn of_cluster(kubeconfig: &Kubeconfig) -> Option<&str> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig
        .contexts
        .iter()
        .find(|one| one.name == *current)?;
    let name = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == *name)?;
    cluster.cluster.as_ref()?.proxy_url.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The choice for a cluster with a `proxy-url`, in an environment.
    fn chosen(own: &str, cluster: &str, environment: &[(&str, &str)]) -> Option<String> {
        let kubeconfig = format!(
            "{{current-context: a, contexts: [{{name: a, context: {{cluster: b}}}}], \
             clusters: [{{name: b, cluster: {{server: x, proxy-url: '{own}'}}}}]}}"
        );
        let variable = |wanted: &str| {
            let found = environment.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        let kubeconfig = Kubeconfig::from_yaml(&kubeconfig).unwrap();
        let proxy = choose(&kubeconfig, &cluster.parse().unwrap(), variable).unwrap()?;
        Some(proxy.to_string())
    }

    #[test]
    fn a_proxy_is_chosen_as_kubectl_does() {
        const HTTPS: &str = "https://k.example:6443";
        let proxy = ("HTTPS_PROXY", "http://me:secret@p:3128");
        let some = Some("http://me:secret@p:3128/".to_owned());
        assert_eq!(chosen("", HTTPS, &[]), None);
        assert_eq!(chosen("", HTTPS, &[proxy]), some);
        assert_eq!(chosen("", "http://k.example", &[proxy]), None);
        for excepted in ["k.example", ".example", "*", "10.0.0.0/8, k.example"] {
            let environment = [proxy, ("NO_PROXY", excepted)];
            assert_eq!(chosen("", HTTPS, &environment), None, "{excepted}");
        }
        assert_eq!(chosen("", HTTPS, &[proxy, ("no_proxy", "p")]), some);
        let short = [("HTTPS_PROXY", ""), ("https_proxy", "q:80")];
        assert_eq!(chosen("", HTTPS, &short), Some("http://q:80/".into()));
        let environment = [proxy, ("NO_PROXY", "*")];
        let own = chosen("http://own:1", HTTPS, &environment);
        assert_eq!(own, Some("http://own:1/".into()));
    }
}
